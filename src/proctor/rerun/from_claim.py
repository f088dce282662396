"""The trials that a claim counts, with their evidence from a ledger.

The claim is verified first: its entries are in the ledger of its checkpoint, and the score follows
from them. `proctor check` verifies who signed the checkpoint. Each piece of evidence is compared
with the digest in its entry before it is used.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.errors import DamageError, MissingArtifactError, NotReplayableError
from proctor.harbor.documents import TRIAL, TrialDocument, WrittenRewards
from proctor.harbor.record import UNRESOLVED
from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.claims.claim import Proven, find_differences, parse_claim, prove_claim
from proctor.ledger.claims.document import load_document
from proctor.ledger.claims.operands import operand_of
from proctor.ledger.entry import AnyEntry, EvidenceFile, TrialEntry, WithholdEntry
from proctor.ledger.ledger import open_artifacts
from proctor.ledger.log import is_ledger
from proctor.ledger.row import read_row
from proctor.rerun.recorded import LARGEST_DOCUMENT, RecordedTrial, parse_config, read_recorded


@dataclass(frozen=True, slots=True)
class ClaimTrials:
    """The trials that a claim counts."""

    title: str
    """The claimed experiment."""
    entries: dict[str, TrialEntry]
    """Entries by trial."""
    withheld: dict[str, str]
    """Why evidence was withheld, by its digest."""
    artifacts: ArtifactStore
    n_withheld: int
    """Trials of the claim whose records were withheld."""

    @property
    def names(self) -> list[str]:
        """The ids of the trials."""
        return list(self.entries)

    def load(self, name: str) -> RecordedTrial:
        """Load one trial.

        Raises:
            NotReplayableError: its evidence is missing, withheld, altered, or belongs to another
                trial than its record.
        """
        entry = self.entries[name]
        files = {file.path: file for file in entry.evidence}

        def read(path: str, largest: int) -> bytes | None:
            return self._read(files[path], largest) if path in files else None

        config, result = (read(each, LARGEST_DOCUMENT) for each in ("config.json", "result.json"))
        if config is None or result is None:
            missing = "config.json" if config is None else "result.json"
            raise NotReplayableError(f"{missing} is not in its sealed evidence")
        found = _parse_result(result)
        _check_counted(entry, found)
        settings = parse_config(config, "its config.json")
        return read_recorded(name, settings, found, _find_rewards(entry), bytes(entry.record), read)

    def _read(self, file: EvidenceFile, largest: int) -> bytes:
        if file.size > largest:
            raise NotReplayableError(
                f"{file.path} has {file.size:,} bytes; the limit is {largest:,}"
            )
        try:
            return self.artifacts.load(file.sha256, file.size)
        except MissingArtifactError as error:
            why = self.withheld.get(file.sha256)
            gone = "is not in the ledger" if why is None else f"is withheld: {why}"
            raise NotReplayableError(f"{file.path} {gone}") from error
        except DamageError as error:
            raise NotReplayableError(f"{file.path}: {error}") from error


def load_claim_trials(path: str, ledger: Path) -> ClaimTrials:
    """Load the trials of a claim.

    Raises:
        InputError: the file is not a claim, or there is no ledger.
        DamageError: the claim is wrong.
    """
    claim = parse_claim(load_document(path), path)
    proven = prove_claim(claim, path)
    for difference in find_differences(claim, proven):
        raise DamageError(f"{path}: {difference}")
    if not is_ledger(ledger):
        raise NotReplayableError(
            f"{ledger}: not a ledger with evidence; pass the ledger that the claim was made from "
            "with --ledger"
        )
    if not proven.trials.counted:
        raise NotReplayableError(f"{path}: it counts no trial; there is nothing to run again")
    return ClaimTrials(
        title=claim.experiment,
        entries=_name(proven),
        withheld=_find_withheld(proven.entries),
        artifacts=open_artifacts(ledger),
        n_withheld=len(proven.trials.withheld),
    )


def _name(proven: Proven) -> dict[str, TrialEntry]:
    return {row.trial_id: entry for entry, row in proven.trials.counted}


def _find_withheld(entries: Iterable[AnyEntry]) -> dict[str, str]:
    return {
        digest: entry.reason
        for entry in entries
        if isinstance(entry, WithholdEntry)
        for digest in entry.artifacts
    }


def _parse_result(data: bytes) -> TrialDocument:
    try:
        return TRIAL.parse(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotReplayableError(f"its result.json is not a trial result: {error}") from error


class _Task(msgspec.Struct, frozen=True):
    task_id: str
    task_revision: str


class _Agent(msgspec.Struct, frozen=True):
    adapter: str


class _Counted(msgspec.Struct, frozen=True):
    """The parts of a record that identify what is counted."""

    task: _Task
    agent: _Agent


_decode_counted = msgspec.json.Decoder(_Counted).decode


def _check_counted(entry: TrialEntry, result: TrialDocument) -> None:
    """Check that the evidence, which is run again, belongs to what the record counts."""
    try:
        record = _decode_counted(entry.record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotReplayableError(f"its record does not name its task: {error}") from error
    pairs = {
        "task": (record.task.task_id, result.task_name),
        "checksum of the task": (record.task.task_revision, result.task_checksum or UNRESOLVED),
        "agent": (record.agent.adapter, result.agent_info.name),
    }
    for what, (counted, in_evidence) in pairs.items():
        if counted not in (in_evidence, UNRESOLVED):
            raise NotReplayableError(
                f"its record counts the {what} {counted!r}, but its evidence is of {in_evidence!r}"
            )


def _find_rewards(entry: TrialEntry) -> WrittenRewards | None:
    written = operand_of(entry, read_row(entry)).rewards
    if written is None:
        return None
    numbers = {
        key: value if isinstance(value, int) else float.fromhex(str(value))
        for key, value in written.items()
    }
    return {key: value if math.isfinite(value) else None for key, value in numbers.items()}
