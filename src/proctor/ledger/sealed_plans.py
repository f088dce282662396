"""The plans in a ledger."""

from dataclasses import dataclass

from proctor.errors import InputError
from proctor.ledger.entry import PlanEntry
from proctor.ledger.query import looking
from proctor.ledger.reader import LedgerReader
from proctor.ledger.run_plan import RunPlan, parse_plan, plan_digest
from proctor.ledger.trial_index import check_text


@dataclass(frozen=True, slots=True)
class SealedPlan:
    """A plan and its place in the log."""

    seq: int
    at: str
    """When it was sealed, by the writer's clock."""
    experiment: str
    author: str
    digest: str
    """SHA-256 of the plan's bytes as stored."""
    data: bytes
    """The plan as it was sealed, which may be of any format."""
    where: str

    @property
    def plan(self) -> RunPlan:
        """The plan.

        Raises:
            InputError: it is of a format that is not known here.
        """
        return parse_plan(self.data, self.where)

    @property
    def n_trials(self) -> int | None:
        """All that are to be run; None where the format is not known."""
        try:
            return self.plan.n_trials
        except InputError:
            return None


def find_plans(
    ledger: LedgerReader, experiment: str | None = None, *, at: int | None = None
) -> list[SealedPlan]:
    """All plans, or those of one experiment, in the order they were sealed; perhaps up to a size.

    Raises:
        DamageError: the log does not give what its checkpoint says.
    """
    found = []
    with looking(ledger) as size:
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


def _tell_plans(plans: list[SealedPlan]) -> str:
    if not plans:
        return "none is sealed there: `proctor plan` does that, before a run"
    return (
        "expected an entry's number or an experiment that was planned, such as "
        f"{plans[-1].experiment}: `proctor plan show` lists them"
    )


def find_plan(ledger: LedgerReader, name: str) -> SealedPlan:
    """The plan that somebody means: an entry's number, or the first one of an experiment.

    Raises:
        InputError: there is none.
        DamageError: the log does not give what its checkpoint says.
    """
    check_text(name, "a plan's name")
    plans = find_plans(ledger)
    if name.isascii() and name.isdigit():
        plans = [each for each in plans if each.seq == int(name[:20])]
    else:
        plans = [each for each in plans if each.experiment == name]
    if not plans:
        told = _tell_plans(find_plans(ledger))
        raise InputError(f"{ledger.where}: no plan is called {name[:200]!r}; {told}")
    return plans[0]
