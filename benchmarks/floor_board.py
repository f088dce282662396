"""Every trial of a dataset decoded once from a ledger's index, as all lists and boards get them.

A floor for `proctor board`, to be run by a fresh interpreter: LEDGER DATASET. The ledger itself is
not looked at: neither its log nor its checkpoint.
"""

import sqlite3
import sys
from pathlib import Path

from proctor.ledger.derived import INDEX, find_folder
from proctor.ledger.index import Index
from proctor.ledger.trial_index import TrialFilter


def main() -> None:
    """Print how many there are."""
    folder = find_folder(Path(sys.argv[1]))
    if folder is None:
        sys.exit("there is no cache")
    connection = sqlite3.connect(f"file:{folder / INDEX}?mode=ro", uri=True)
    print(len(list(Index(connection).trials(TrialFilter(dataset=sys.argv[2])))))
    connection.close()
