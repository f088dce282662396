"""A record under another id, every other byte as it was written. It reads and writes no file."""

import json
import re
from typing import Any

import msgspec

_IDS = {
    key: re.compile(rb'("%s":\s*)"(?:[^"\\]|\\.)*"' % key.encode())
    for key in ("trial_id", "experiment_id")
}
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def replace_id(data: bytes, key: str, value: str) -> bytes | None:
    """The record's bytes with another `trial_id` or `experiment_id`; None where that cannot be.

    Raises:
        MsgspecError, UnicodeDecodeError, RecursionError: they are no JSON object.
    """
    record = _OBJECT.decode(data)
    if record.get(key) == value:
        return data
    written = json.dumps(value).encode()
    changed = _IDS[key].sub(lambda found: found[1] + written, data, count=1)
    # Only where the key itself was hit, and not the same word in a text before it.
    return changed if _OBJECT.decode(changed) == {**record, key: value} else None
