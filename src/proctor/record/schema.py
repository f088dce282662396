"""The JSON Schema of the format: what is accepted and written as a record of the first generation.

It says shapes and ranges. Rules between fields (an answer that could not be read scores 0, a
lineage fits its variation) and what `complete` promises are not in it.
"""

import json
from typing import Final

from proctor.record.model import TrialRecord

SCHEMA_ID: Final = "urn:proctor:trial-record:1"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def render_schema() -> bytes:
    """The schema, as JSON with an indent of 2 and a newline at the end."""
    body = TrialRecord.model_json_schema()
    schema = {"$schema": DIALECT, "$id": SCHEMA_ID, **body}
    return (json.dumps(schema, indent=2, ensure_ascii=False) + "\n").encode()
