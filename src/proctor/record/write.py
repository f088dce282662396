"""A record to its bytes: JSON with an indent of 2, keys in the order of the format.

Every optional key is there, as null where nothing is known; text stands raw; there is no newline at
the end; numbers and times have pydantic's text, as aec-bench's have. Keys that were read beyond
the format go back where they stood when they are handed in, and are never invented.
Nothing here writes a file.
"""

from collections.abc import Sequence

from pydantic_core import PydanticSerializationError, to_json

from proctor.errors import RecordError
from proctor.record.additions import Kept, put_back
from proctor.record.model import TrialRecord


def render_record(record: TrialRecord, kept: Sequence[Kept] = ()) -> bytes:
    """The bytes of a record.

    Raises:
        RecordError: something in it cannot be written, or `kept` does not fit it.
    """
    try:
        if not kept:
            return record.model_dump_json(indent=2).encode()
        tree = record.model_dump(mode="json")
        put_back(tree, kept)
        return to_json(tree, indent=2)
    except PydanticSerializationError as error:
        raise RecordError(f"{record.trial_id!r} cannot be written: {error}") from error
