"""The digest of an agent's configuration: the same settings give the same digest.

The settings are spelled as JSON with sorted keys, no blanks, text raw in UTF-8 and numbers as
Python spells them (1 and 1.0 stay apart), and that spelling is hashed with SHA-256. What the
settings mean is not known here.
"""

import json

from proctor.digest import sha256_hex
from proctor.errors import RecordError
from proctor.record.fields import Object, check_json


def configuration_digest(configuration: Object) -> str:
    """SHA-256 of the one spelling of a configuration.

    Raises:
        RecordError: it holds what JSON cannot.
    """
    try:
        check_json(configuration)
    except ValueError as error:
        raise RecordError(f"configuration {error}") from error
    text = json.dumps(configuration, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256_hex(text.encode())
