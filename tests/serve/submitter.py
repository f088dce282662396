"""A program that seals trials into a served ledger, one after the other.

    python -m tests.serve.submitter URL EVIDENCE TRIAL…

Trials that are sealed already are sealed again, which changes nothing. Its first copy of the ledger
needs the server, for which it waits.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from proctor.errors import LedgerError
from proctor.ledger.keys import find_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.remote.mirror import open_mirror
from proctor.ledger.sealing import seal
from tests.serve.servers import submission_of

_PATIENCE_SEC = 60


def main() -> None:
    """Seal."""
    url, evidence, *trials = sys.argv[1:]
    directory = _when_up(lambda: open_mirror(url, os.environ, lambda _: None))
    with OpenLedger.open(directory, key=find_key(None, os.environ)) as ledger:
        ledger.refresh()
        for trial in trials:
            seal(ledger, [submission_of(trial, Path(evidence))])


def _when_up[T](act: Callable[[], T]) -> T:
    """Do what fails while the server is down and nothing was ever copied from it."""
    until = time.monotonic() + _PATIENCE_SEC
    while True:
        try:
            return act()
        except LedgerError as error:
            if "there is no copy of this ledger yet" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main()
