"""A program that seals trials one step after the other, and says on its output when each is sealed.

    python -m tests.ledger.sealer LEDGER KEY EVIDENCE STEP…

A step is a comma-separated list of trials that are sealed together. Its segments are short, so
that some steps begin a new one.
"""

import os
import sys
from pathlib import Path

from proctor.errors import LedgerError
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.keys import load_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.log import FileLog
from proctor.ledger.sealing import Submission, seal
from tests.ledger.ledgers import record_bytes

STEPS = ("a", "b,c", "d", "e,f,g")
"""What the tests of crashes seal."""
_SHORT = 4000


def submission_of(trial: str, evidence: Path) -> Submission:
    """A trial with two files of evidence: one that others have too, one of its own."""
    return Submission(
        record=record_bytes(trial),
        where=trial,
        root=evidence,
        evidence=("shared.txt", f"{trial}.txt"),
    )


TOGETHER = "SYNC_ALL_AT_ONCE"
"""Environment variable: the disk is asked for all files of a seal at once, as for large batches."""


def say(text: str) -> None:
    """By another system call than files are written with, so that a test can break those alone."""
    os.writev(1, [f"{text}\n".encode()])


def main() -> None:
    """Seal, and say so."""
    directory, key, evidence, *steps = sys.argv[1:]
    with OpenLedger.open(directory, key=load_key(Path(key))) as ledger:
        assert isinstance(ledger.log, FileLog)
        assert isinstance(ledger.artifacts, FileArtifacts)
        ledger.log.segment_size = _SHORT
        if TOGETHER in os.environ:
            ledger.artifacts.one_by_one = 0
        say("open")
        for step in steps:
            names = step.split(",")
            try:
                seal(ledger, [submission_of(name, Path(evidence)) for name in names])
            except LedgerError as error:
                say(f"refused {step}: {error}")
            else:
                say(f"sealed {step}")


if __name__ == "__main__":
    main()
