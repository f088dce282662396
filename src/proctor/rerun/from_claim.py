"""The trials that a claim counts, with their evidence out of a ledger.

The claim is proven first: its entries are in the ledger that its checkpoint speaks of, and the
score follows from them. Whose signature the checkpoint bears is for `proctor check` to say. Each
piece of evidence is held against the digest in its entry before anything is done with it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.errors import DamageError, MissingArtifactError, NotReplayableError
from proctor.harbor.documents import TRIAL, TrialDocument, WrittenRewards
from proctor.harbor.record import UNRESOLVED
from proctor.ledger.artifacts import ArtifactStore, FileArtifacts
from proctor.ledger.claims.claim import Proven, find_differences, parse_claim, prove_claim
from proctor.ledger.claims.document import load_document
from proctor.ledger.claims.operands import operand_of
from proctor.ledger.entry import AnyEntry, EvidenceFile, TrialEntry, WithholdEntry
from proctor.ledger.row import read_row
from proctor.rerun.recorded import RecordedTrial, find_image, find_trace_file, parse_config

_LARGEST = 1 << 24
"""Bytes of a config.json or result.json."""


@dataclass(frozen=True, slots=True)
class ClaimTrials:
    """The trials that a claim counts."""

    title: str
    """The experiment that is claimed."""
    entries: dict[str, TrialEntry]
    """By trial."""
    withheld: dict[str, str]
    """Why evidence was taken out, by its digest."""
    artifacts: ArtifactStore
    n_withheld: int
    """Trials of the claim whose records were taken out."""

    @property
    def names(self) -> list[str]:
        """The ids of the trials."""
        return list(self.entries)

    def load(self, name: str) -> RecordedTrial:
        """One of them.

        Raises:
            NotReplayableError: its evidence is not there, withheld, not what was sealed, or of
                another trial than its record.
        """
        entry = self.entries[name]
        files = {file.path: file for file in entry.evidence}

        def read(path: str, largest: int) -> bytes | None:
            return self._read(files[path], largest) if path in files else None

        config, result = read("config.json", _LARGEST), read("result.json", _LARGEST)
        if config is None or result is None:
            missing = "config.json" if config is None else "result.json"
            raise NotReplayableError(f"{missing} is not among its sealed evidence")
        found = _parse_result(result)
        _check_counted(entry, found)
        return RecordedTrial(
            name=name,
            config=parse_config(config, "its config.json"),
            result=found,
            rewards=_find_rewards(entry),
            trace=find_trace_file(read),
            image=find_image(bytes(entry.record)),
        )

    def _read(self, file: EvidenceFile, largest: int) -> bytes:
        if file.size > largest:
            raise NotReplayableError(f"{file.path} has {file.size:,} bytes; {largest:,} are read")
        try:
            return self.artifacts.load(file.sha256, file.size)
        except MissingArtifactError as error:
            why = self.withheld.get(file.sha256)
            gone = "is not in the ledger" if why is None else f"is withheld: {why}"
            raise NotReplayableError(f"{file.path} {gone}") from error
        except DamageError as error:
            raise NotReplayableError(f"{file.path}: {error}") from error


def load_claim_trials(path: str, ledger: Path) -> ClaimTrials:
    """The trials of a claim.

    Raises:
        InputError: the file is no claim, or there is no ledger.
        DamageError: the claim does not hold.
    """
    claim = parse_claim(load_document(path), path)
    proven = prove_claim(claim, path)
    for difference in find_differences(claim, proven):
        raise DamageError(f"{path}: {difference}")
    if not (ledger / "artifacts").is_dir():
        raise NotReplayableError(
            f"{ledger}: no ledger with evidence; expected the one that the claim was made from, "
            "named with --ledger"
        )
    if not proven.standing.counted:
        raise NotReplayableError(f"{path}: it counts no trial; there is nothing to run again")
    return ClaimTrials(
        title=claim.experiment,
        entries=_name(proven),
        withheld=_find_withheld(proven.entries),
        artifacts=FileArtifacts(ledger),
        n_withheld=len(proven.standing.withheld),
    )


def _name(proven: Proven) -> dict[str, TrialEntry]:
    return {read_row(entry).trial_id: entry for entry in proven.standing.counted}


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
        raise NotReplayableError(f"its result.json is no trial result: {error}") from error


class _Task(msgspec.Struct, frozen=True):
    task_id: str
    task_revision: str


class _Agent(msgspec.Struct, frozen=True):
    adapter: str


class _Counted(msgspec.Struct, frozen=True):
    """As much of a record as says what is counted."""

    task: _Task
    agent: _Agent


_decode_counted = msgspec.json.Decoder(_Counted).decode


def _check_counted(entry: TrialEntry, result: TrialDocument) -> None:
    """See that the evidence, which is run again, tells of what the record counts."""
    try:
        record = _decode_counted(entry.record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotReplayableError(f"its record says nothing of its task: {error}") from error
    pairs = {
        "task": (record.task.task_id, result.task_name),
        "checksum of the task": (record.task.task_revision, result.task_checksum or UNRESOLVED),
        "agent": (record.agent.adapter, result.agent_info.name),
    }
    for what, (counted, told) in pairs.items():
        if counted not in (told, UNRESOLVED):
            raise NotReplayableError(
                f"its record counts the {what} {counted!r}, and its evidence is of {told!r}"
            )


def _find_rewards(entry: TrialEntry) -> WrittenRewards | None:
    written = operand_of(entry).rewards
    if written is None:
        return None
    numbers = {
        key: value if isinstance(value, int) else float.fromhex(str(value))
        for key, value in written.items()
    }
    return {key: value if math.isfinite(value) else None for key, value in numbers.items()}
