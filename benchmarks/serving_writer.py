"""A writer of `serve-batch`: `python -m benchmarks.serving_writer LEDGER NUMBER BATCHES`.

LEDGER is a directory or an address. Says `ready`, waits for a line, seals, and says `done`.
"""

import os
import sys
from pathlib import Path

from benchmarks.serving import make_submissions
from proctor.ledger.keys import find_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.place import ledger_directory
from proctor.ledger.sealing import seal

_BATCH = 100


def main() -> None:
    """Seal."""
    where, number, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    first = number * batches * _BATCH
    made = [make_submissions(Path(), first + each * _BATCH, _BATCH, 0) for each in range(batches)]
    directory = ledger_directory(where, os.environ)
    with OpenLedger.open(directory, key=find_key(None, os.environ)) as ledger:
        ledger.refresh()
        print("ready", flush=True)
        sys.stdin.readline()
        for batch in made:
            if len(seal(ledger, batch)) != _BATCH:
                raise SystemExit(1)
    print("done", flush=True)


if __name__ == "__main__":
    main()
