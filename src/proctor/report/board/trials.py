"""The trials of a board at a position: which are superseded, and which scores count.

Which supersessions count is decided by `proctor.ledger.supersession`. Rescores count from their
position in the log on.
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
    listed: list[TrialRow]
    """In the order they were sealed, with their status and score at the position."""
    supersessions: Mapping[str, Supersession]
    """By the record of the superseded trial."""
    remarks: Mapping[str, Rescored]
    """By the record of the rescored trial."""
    withheld: list[WithheldTrial]
    """Of the experiments on the board."""
    withheld_elsewhere: int
    """Withheld trials of other experiments, whose datasets are unknown."""
    withheld_unnamed: list[UnnamedWithholding]
    """Withholdings that name no trial, whose experiments are unknown."""


def load_board_trials(ledger: LedgerReader, position: Position) -> BoardTrials:
    """Apply supersessions and rescores to the trials at a position.

    Raises:
        DamageError: an entry of the log does not match the index.
    """
    rows, size = position.trials, position.size
    withheld = list(ledger.index.trials(TrialFilter(status=WITHHELD), size=size))
    supersessions = _find_supersessions(ledger, position)
    remarks = _find_remarks(ledger, rows, size)
    if remarks:
        marked = {record: again for record, (_, again) in remarks.items()}
        rows = [marked.get(each.record, each) for each in rows]
    experiments = {each.experiment_id for each in rows} if withheld else set()
    here = [row for row in withheld if row.experiment_id in experiments]
    return BoardTrials(
        size=size,
        listed=rows,
        supersessions=supersessions,
        remarks={record: remark for record, (remark, _) in remarks.items()},
        withheld=[_describe_withheld(ledger, row) for row in here],
        withheld_elsewhere=len(withheld) - len(here),
        withheld_unnamed=position.unnamed,
    )


def _find_supersessions(ledger: LedgerReader, position: Position) -> dict[str, Supersession]:
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
        record: Supersession(
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


# Rescores


def _find_remarks(
    ledger: LedgerReader, rows: Sequence[TrialRow], size: int
) -> dict[str, tuple[Rescored, TrialRow]]:
    places = ledger.index.remarks(kind="rescore", size=size)
    if not places:
        return {}
    known = {each.record: each for each in rows}
    found: dict[str, tuple[Rescored, TrialRow]] = {}
    for seq in places:
        entry = ledger.entry(seq)
        if isinstance(entry, RescoreEntry) and entry.subject.record in known:
            row = known[entry.subject.record]
            fields = (entry.score.profile, entry.reason, entry.author)
            remark = Rescored(seq, *fields, former=row.reward)
            found[row.record] = remark, _rescore(row, entry.score, seq)
    return found


def _rescore(row: TrialRow, score: TrialScore, seq: int) -> TrialRow:
    """The trial with its new score; without operands, only with the new profile."""
    conditions = row.run_conditions
    if conditions is not None:
        conditions = msgspec.structs.replace(conditions, profile=score.profile)
    if score.certificate is None:
        return msgspec.structs.replace(row, run_conditions=conditions)
    reward = _read_reward(score.certificate.get("rewards"), f"entry {seq}")
    reason = None if reward is not None else row.reason_code
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
