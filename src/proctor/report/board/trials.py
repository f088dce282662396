"""The trials of a board at a position: which are superseded, and which scores count.

Which supersessions count is decided by `proctor.ledger.counting`. Rescores count from their
position in the log on.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from proctor.audit.certificate import CertifiedGroup, CertifiedTrial, certified_column
from proctor.errors import CertificateError, DamageError
from proctor.ledger.counting import NOT_COUNTED, WITHHELD
from proctor.ledger.entry import RescoreEntry, SupersedeEntry, TrialScore, WithholdEntry
from proctor.ledger.query import Position
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.trial_index import TrialFilter
from proctor.record.reasons import ReasonCode
from proctor.reward.number import Number, is_finite

_REWARD = "reward"


@dataclass(frozen=True, slots=True)
class Supersession:
    """A supersession in the log."""

    seq: int
    by: str
    """The replacing trial: EXPERIMENT/TRIAL."""
    by_record: str
    cause: str
    reason: str
    author: str
    refused: str | None
    """Why the supersession does not count; null: it counts."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """A rescore in the log."""

    seq: int
    profile: str
    reason: str
    author: str
    former: float | None
    """The former reward."""


@dataclass(frozen=True, slots=True)
class WithheldTrial:
    """A withheld trial; its name and digest are left."""

    seq: int
    name: str
    record: str
    said_at: int | None
    """Position of the entry that withholds it; null if that is withheld itself."""
    reason: str
    author: str


@dataclass(frozen=True, slots=True)
class BoardTrials:
    """The trials of a board."""

    size: int
    listed: int
    """The number of trials with any status."""
    counted: Mapping[str, int]
    """The number of trials that count, by experiment."""
    supersessions: Mapping[str, Supersession]
    """By the record of the superseded trial."""
    remarks: Mapping[str, Rescored]
    """By the record of the rescored trial."""
    withheld: list[WithheldTrial]
    """Of the experiments on the board."""
    withheld_elsewhere: int
    """Withheld trials of other experiments, whose datasets are unknown."""


class TrialReading:
    """Applies rescores to trials while they are read, and collects what a board says about them."""

    def __init__(self, ledger: LedgerReader, position: Position) -> None:
        self._ledger = ledger
        self._position = position
        self._rescores = _find_rescores(ledger, position.size)
        self._remarks: dict[str, Rescored] = {}
        # Records with a supersession.
        self._named: set[str] = set()
        self._listed: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def read(self, rows: Iterable[TrialRow]) -> Iterator[TrialRow]:
        """The trials with the score that counts."""
        rescores, judged = self._rescores, self._position.supersessions
        listed, left_out = self._listed, self._left_out
        for row in rows:
            listed[row.experiment_id] += 1
            if row.status in NOT_COUNTED:
                left_out[row.experiment_id] += 1
            if row.record in judged:
                self._named.add(row.record)
            yield self._rescore(row) if row.record in rescores else row

    def _rescore(self, row: TrialRow) -> TrialRow:
        entry = self._rescores[row.record]
        fields = (entry.score.profile, entry.reason, entry.author)
        self._remarks[row.record] = Rescored(entry.seq, *fields, former=row.reward)
        return _rescore(row, entry.score, entry.seq)

    def finish(self) -> BoardTrials:
        """What was collected."""
        size = self._position.size
        withheld = list(self._ledger.index.trials(TrialFilter(status=WITHHELD), size=size))
        here = [row for row in withheld if row.experiment_id in self._listed]
        return BoardTrials(
            size=size,
            listed=self._listed.total(),
            counted={
                name: number - self._left_out[name]
                for name, number in self._listed.items()
                if number > self._left_out[name]
            },
            supersessions=_find_supersessions(self._ledger, self._position, self._named),
            remarks=self._remarks,
            withheld=[_describe_withheld(self._ledger, row) for row in here],
            withheld_elsewhere=len(withheld) - len(here),
        )


def _find_supersessions(
    ledger: LedgerReader, position: Position, known: Collection[str]
) -> dict[str, Supersession]:
    judged = position.supersessions
    if not known:
        return {}
    entries = [
        entry
        for seq in ledger.index.remarks(kind="supersede", size=position.size)
        if isinstance(entry := ledger.entry(seq), SupersedeEntry)
    ]
    latest = {entry.subject.record: entry for entry in entries}
    return {
        record: Supersession(
            seq=entry.seq,
            by=entry.by.name,
            by_record=entry.by.record,
            cause=entry.cause,
            reason=entry.reason,
            author=entry.author,
            refused=judged[record],
        )
        for record, entry in latest.items()
        if record in known
    }


# Rescores


def _find_rescores(ledger: LedgerReader, size: int) -> dict[str, RescoreEntry]:
    """The last rescore of each record."""
    entries = map(ledger.entry, ledger.index.remarks(kind="rescore", size=size))
    return {entry.subject.record: entry for entry in entries if isinstance(entry, RescoreEntry)}


def _rescore(row: TrialRow, score: TrialScore, seq: int) -> TrialRow:
    """The trial with its new score; without operands, only with the new profile."""
    conditions = row.run_conditions
    if conditions is not None:
        conditions = msgspec.structs.replace(conditions, profile=score.profile)
    if score.certificate is None:
        return msgspec.structs.replace(row, run_conditions=conditions)
    reward = _read_reward(score.certificate.get("rewards"), f"entry {seq}")
    missing = row.reason_code or str(ReasonCode.HARBOR_REWARD_MISSING)
    reason = None if score.certificate.get("rewards") else missing
    return msgspec.structs.replace(
        row, run_conditions=conditions, reward=reward, reason_code=reason
    )


def _read_reward(written: object, where: str) -> Number | None:
    """The reward of a certificate: the only one, or the one named `reward`."""
    if not isinstance(written, dict) or not written:
        return None
    operand = CertifiedTrial(0, "", "", written, "", None)
    try:
        (rewards,) = certified_column(CertifiedGroup(where, [operand], [], {})).rewards
    except CertificateError as error:
        raise DamageError(f"{where}: its rewards cannot be read: {error}") from error
    if not rewards:
        return None
    reward = rewards.get(_REWARD) if len(rewards) > 1 else next(iter(rewards.values()))
    return reward if reward is not None and is_finite(reward) else None


def _describe_withheld(ledger: LedgerReader, row: TrialRow) -> WithheldTrial:
    for place in ledger.index.remarks(record=row.record, kind="withhold"):
        entry = ledger.entry(place)
        if isinstance(entry, WithholdEntry) and entry.entry == row.seq:
            return WithheldTrial(row.seq, row.name, row.record, place, entry.reason, entry.author)
    return WithheldTrial(row.seq, row.name, row.record, None, "", "")
