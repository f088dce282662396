"""Ledgers to publish, and targets that fail."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from proctor.ledger.ledger import OpenLedger
from proctor.ledger.publishing import Published, Stored, Target, publish
from proctor.ledger.query import list_trials
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.verification.verify import verify_ledger
from tests.ledger.ledgers import find_key, make_ledger, record_bytes
from tests.serve.servers import Machine


@dataclass(slots=True)
class Owner:
    """Somebody who has a ledger, and publishes it."""

    top: Path

    @property
    def directory(self) -> Path:
        """The ledger."""
        return self.top / "ledger"

    def create(self, *trials: str) -> "Owner":
        """Make the ledger, with these trials, each with evidence of its own."""
        self.top.mkdir(exist_ok=True)
        make_ledger(self.top).close()
        self.seal(*trials)
        return self

    def open(self) -> OpenLedger:
        """The ledger, open for writing."""
        ledger = OpenLedger.open(self.directory, key=find_key(self.top))
        ledger.refresh()
        return ledger

    def seal(self, *trials: str) -> None:
        """Seal trials, each with a file of its own and one that all share."""
        root = self.top / "evidence"
        root.mkdir(exist_ok=True)
        (root / "shared.txt").write_text("the same in all trials\n")
        submissions = []
        for trial in trials:
            (root / f"{trial}.txt").write_text(evidence_of(trial))
            names = (f"{trial}.txt", "shared.txt")
            record = record_bytes(trial)
            submissions.append(Submission(record=record, where=trial, root=root, evidence=names))
        with self.open() as ledger:
            seal(ledger, submissions)

    def publish(self, target: Target, *, is_all: bool = False) -> Published:
        """Publish it."""
        with OpenLedger.open(self.directory) as ledger:
            return publish(ledger, target, is_all=is_all)

    def copy(self, top: Path) -> "Owner":
        """A copy of all that the owner has."""
        shutil.copytree(self.top, top)
        return Owner(top)

    @property
    def size(self) -> int:
        """Entries of the ledger."""
        with OpenLedger.open(self.directory) as ledger:
            return ledger.checkpoint().tree.size


def evidence_of(trial: str) -> str:
    """The content of a trial's own file."""
    return f"what {trial} left\n" * 50


def read_trials(reader: Machine) -> list[str]:
    """The trials that somebody else sees, after everything is verified."""
    with reader.using():
        directory = reader.fetch()
        verification = verify_ledger(directory)
        assert verification.is_sound, verification.damage
        with OpenLedger.open(directory) as ledger:
            ledger.refresh()
            return [row.trial_id for row in list_trials(ledger)]


class KilledError(Exception):
    """The publisher was killed."""


@dataclass(slots=True)
class Failing:
    """A target that writes a number of times, and then no more."""

    inner: Target
    left: int

    @property
    def url(self) -> str:
        return self.inner.url

    def _count(self) -> None:
        if self.left <= 0:
            raise KilledError
        self.left -= 1

    def check_conditions(self) -> None:
        self.inner.check_conditions()

    def read(self, path: str, largest: int) -> Stored | None:
        return self.inner.read(path, largest)

    def put(self, path: str, data: bytes | BinaryIO) -> int:
        self._count()
        return self.inner.put(path, data)

    def swap(self, path: str, data: bytes, version: str | None) -> bool:
        self._count()
        return self.inner.swap(path, data, version)

    def list(self, folder: str) -> Iterator[str]:
        return self.inner.list(folder)

    def existing(self, folder: str, names: Sequence[str]) -> set[str]:
        return self.inner.existing(folder, names)

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._count()
            self.inner.remove([path])
