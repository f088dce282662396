"""The plans in a ledger."""

from dataclasses import dataclass

from proctor.errors import InputError
from proctor.ledger.entry import PlanEntry
from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.ledger.run_plan import RunPlan, parse_plan, plan_digest
from proctor.ledger.trial_index import check_text


@dataclass(frozen=True, slots=True)
class SealedPlan:
    """A plan and its position in the log."""

    seq: int
    at: str
    """When it was sealed, by the writer's clock."""
    experiment: str
    author: str
    digest: str
    """SHA-256 of the plan's bytes as stored."""
    data: bytes
    """The sealed bytes, of any plan format."""
    where: str

    @property
    def plan(self) -> RunPlan:
        """The parsed plan."""
        return parse_plan(self.data, self.where)

    @property
    def n_trials(self) -> int | None:
        """The number of planned trials; None if the format is unknown."""
        try:
            return self.plan.n_trials
        except InputError:
            return None


def list_plans(
    ledger: LedgerReader, experiment: str | None = None, *, at: int | None = None
) -> list[SealedPlan]:
    """All plans or those of one experiment, in order; with `at`, those at that size of the log."""
    found = []
    with snapshot(ledger) as size:
        places = ledger.index.places("plan", size=at or size)
    for seq in places:
        entry = ledger.entry(seq)
        if isinstance(entry, PlanEntry) and experiment in (None, entry.experiment_id):
            found.append(_describe(entry, f"{ledger.where}: entry {seq}"))
    return found


def _describe(entry: PlanEntry, where: str) -> SealedPlan:
    data = bytes(entry.plan)
    return SealedPlan(
        seq=entry.seq,
        at=entry.at,
        experiment=entry.experiment_id,
        author=entry.author,
        digest=plan_digest(data),
        data=data,
        where=where,
    )


def _suggest_plans(plans: list[SealedPlan]) -> str:
    if not plans:
        return "the ledger has no plans: seal one with `proctor plan` before a run"
    return (
        "expected an entry's number or an experiment that was planned, such as "
        f"{plans[-1].experiment}: `proctor plan show` lists them"
    )


def get_plan(ledger: LedgerReader, name: str) -> SealedPlan:
    """Get a plan by its entry number, or the first one of an experiment.

    Raises:
        InputError: there is none.
        DamageError: the log does not match its checkpoint.
    """
    check_text(name, "a plan's name")
    plans = list_plans(ledger)
    if name.isascii() and name.isdigit():
        plans = [each for each in plans if each.seq == int(name[:20])]
    else:
        plans = [each for each in plans if each.experiment == name]
    if not plans:
        suggestion = _suggest_plans(list_plans(ledger))
        raise InputError(f"{ledger.where}: no plan is named {name[:200]!r}; {suggestion}")
    return plans[0]
