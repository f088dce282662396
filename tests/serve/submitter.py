"""A program that seals trials into a served ledger, one after the other.

    python -m tests.serve.submitter URL EVIDENCE TRIAL…

Trials that are sealed already are sealed again, which changes nothing.
"""

import os
import sys
from pathlib import Path

from proctor.ledger.keys import find_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.remote.mirror import open_mirror
from proctor.ledger.sealing import seal
from tests.serve.servers import submission_of


def main() -> None:
    """Seal."""
    url, evidence, *trials = sys.argv[1:]
    directory = open_mirror(url, os.environ, lambda _: None)
    with OpenLedger.open(directory, key=find_key(None, os.environ)) as ledger:
        ledger.refresh()
        for trial in trials:
            seal(ledger, [submission_of(trial, Path(evidence))])


if __name__ == "__main__":
    main()
