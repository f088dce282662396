"""What a crash left behind the checkpoint: nobody signed it, nobody was told, and it is put aside.

Moved to `torn/` and never deleted. Nothing here decides where a ledger ends.
"""

import os
from pathlib import Path

from proctor.contained import make_below
from proctor.files import sync_directory, write_new
from proctor.ledger.segments import (
    Place,
    cut_segment,
    find_segments,
    open_segment,
    segment_path,
)


def put_tail_aside(ledger: Path, place: Place) -> None:
    """Move what lies in a ledger's segments from a place on.

    Raises:
        OSError: it cannot be moved.
    """
    entries, torn = ledger / "entries", ledger / "torn"
    for number in reversed(find_segments(entries)):
        if number < place.segment:
            break
        path = segment_path(entries, number)
        begin = place.offset if number == place.segment else 0
        with open_segment(entries, number) as file:
            file.seek(begin)
            tail = file.read()
        if not tail and begin:
            continue
        make_below(ledger, torn.name)
        write_new(torn / f"{number:06}-{begin}-{os.urandom(4).hex()}", tail)
        cut_segment(path, begin)
    sync_directory(ledger)
