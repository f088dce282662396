"""The trials of a board as they stood at a position: who stands in for whom, which marks count.

Which supersessions count is the rule of `proctor.ledger.supersession`. Marks given later count from
where they stand in the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from proctor.audit.certificate import CertifiedGroup, CertifiedTrial, certified_column
from proctor.errors import CertificateError, DamageError
from proctor.ledger.counting import WITHHELD
from proctor.ledger.entry import RescoreEntry, SupersedeEntry, TrialScore, WithholdEntry
from proctor.ledger.query import Position
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withheld import UnnamedWithholding
from proctor.reward.number import Number, is_finite

_REWARD = "reward"


@dataclass(frozen=True, slots=True)
class StandIn:
    """That another trial stands in for one, as the log says it."""

    seq: int
    by: str
    """The other's name: EXPERIMENT/TRIAL."""
    by_record: str
    cause: str
    reason: str
    author: str
    refused: str | None
    """Why the trial is counted all the same; null: it is not."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """That a trial was marked again."""

    seq: int
    profile: str
    reason: str
    author: str
    former: float | None
    """The reward before."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A trial whose bytes were taken out; its name and digest are left."""

    seq: int
    name: str
    record: str
    said_at: int | None
    """Place of the entry that says so; null where it is withheld itself."""
    reason: str
    author: str


@dataclass(frozen=True, slots=True)
class BoardTrials:
    """All that a board is made from."""

    size: int
    attempts: list[TrialRow]
    """In the order they were sealed, with the status and the marks that count."""
    stand_ins: Mapping[str, StandIn]
    """By the record of the trial that is stood in for."""
    remarks: Mapping[str, Rescored]
    """By the record of the trial that was marked again."""
    withheld: list[Gone]
    """Of the experiments that are on the board."""
    withheld_elsewhere: int
    """Of other experiments: of which dataset they were is not known any more."""
    withheld_unnamed: list[UnnamedWithholding]
    """Without naming a trial: of which experiment they were is not known."""


def settle(ledger: LedgerReader, position: Position) -> BoardTrials:
    """What counts of the attempts at a position.

    Raises:
        DamageError: an entry of the log is not what its index says.
    """
    attempts, size = position.trials, position.size
    gone = list(ledger.index.trials(TrialFilter(status=WITHHELD), size=size))
    stand_ins = _find_stand_ins(ledger, position)
    remarks = _find_remarks(ledger, attempts, size)
    if remarks:
        marked = {record: again for record, (_, again) in remarks.items()}
        attempts = [marked.get(each.record, each) for each in attempts]
    experiments = {each.experiment_id for each in attempts} if gone else set()
    here = [row for row in gone if row.experiment_id in experiments]
    return BoardTrials(
        size=size,
        attempts=attempts,
        stand_ins=stand_ins,
        remarks={record: remark for record, (remark, _) in remarks.items()},
        withheld=[_describe_gone(ledger, row) for row in here],
        withheld_elsewhere=len(gone) - len(here),
        withheld_unnamed=position.unnamed,
    )


# Supersessions


def _find_stand_ins(ledger: LedgerReader, position: Position) -> dict[str, StandIn]:
    judged = position.supersessions
    if not judged:
        return {}
    entries = [
        entry
        for seq in ledger.index.remarks(kind="supersede", size=position.size)
        if isinstance(entry := ledger.entry(seq), SupersedeEntry)
    ]
    latest = {entry.subject.record: entry for entry in entries}
    known = {each.record for each in position.trials}
    return {
        record: StandIn(
            seq=entry.seq,
            by=f"{entry.by.experiment_id}/{entry.by.trial_id}",
            by_record=entry.by.record,
            cause=entry.cause,
            reason=entry.reason,
            author=entry.author,
            refused=judged[record],
        )
        for record, entry in latest.items()
        if record in known and record in judged
    }


# Marks given later


def _find_remarks(
    ledger: LedgerReader, attempts: Sequence[TrialRow], size: int
) -> dict[str, tuple[Rescored, TrialRow]]:
    places = ledger.index.remarks(kind="rescore", size=size)
    if not places:
        return {}
    known = {each.record: each for each in attempts}
    found: dict[str, tuple[Rescored, TrialRow]] = {}
    for seq in places:
        entry = ledger.entry(seq)
        if isinstance(entry, RescoreEntry) and entry.subject.record in known:
            attempt = known[entry.subject.record]
            said = (entry.score.profile, entry.reason, entry.author)
            remark = Rescored(seq, *said, former=attempt.reward)
            found[attempt.record] = remark, _mark_again(attempt, entry.score, seq)
    return found


def _mark_again(attempt: TrialRow, score: TrialScore, seq: int) -> TrialRow:
    """The attempt with its new marks; without operands, only the rules that they followed."""
    conditions = attempt.run_conditions
    if conditions is not None:
        conditions = msgspec.structs.replace(conditions, profile=score.profile)
    if score.certificate is None:
        return msgspec.structs.replace(attempt, run_conditions=conditions)
    reward = _read_reward(score.certificate.get("rewards"), f"entry {seq}")
    reason = None if reward is not None else attempt.reason_code
    return msgspec.structs.replace(
        attempt, run_conditions=conditions, reward=reward, reason_code=reason
    )


def _read_reward(written: object, where: str) -> Number | None:
    """The one reward of a certificate: the only one, or the one of that name."""
    if not isinstance(written, dict) or not written:
        return None
    operand = CertifiedTrial(0, "", "", written, "", None)
    try:
        (rewards,) = certified_column(CertifiedGroup(where, [operand], [], {})).rewards
    except CertificateError as error:
        raise DamageError(f"{where}: its marks cannot be read: {error}") from error
    if not rewards:
        return None
    reward = rewards.get(_REWARD) if len(rewards) > 1 else next(iter(rewards.values()))
    return reward if reward is not None and is_finite(reward) else None


# What was withheld


def _describe_gone(ledger: LedgerReader, row: TrialRow) -> Gone:
    for place in ledger.index.remarks(record=row.record, kind="withhold"):
        entry = ledger.entry(place)
        if isinstance(entry, WithholdEntry) and entry.entry == row.seq:
            return Gone(row.seq, row.name, row.record, place, entry.reason, entry.author)
    return Gone(row.seq, row.name, row.record, None, "", "")
