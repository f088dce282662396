"""Trials with evidence, sealed into ledgers to test with."""

from pathlib import Path

from proctor.ledger.api import Ledger
from proctor.ledger.sealing import Sealed, Submission
from tests.ledger.ledgers import find_key, make_ledger, record_bytes


def open_ledger(directory: Path, *trials: str) -> Ledger:
    """A new ledger in `directory/ledger` for writing, with these trials sealed."""
    make_ledger(directory, trials).close()
    return Ledger.open(directory / "ledger", key=find_key(directory))


def seal_files(ledger: Ledger, trial: str, files: dict[str, bytes], /, **changes: object) -> Sealed:
    """Seal a trial whose evidence is these files."""
    root = Path(ledger.where).parent / "trials" / trial
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    submission = Submission(
        record=record_bytes(trial, **changes), where=trial, root=root, evidence=tuple(files)
    )
    return ledger.seal_all([submission])[0]


def all_bytes(directory: Path) -> bytes:
    """Everything that is on the disk below a directory."""
    return b"\0".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
