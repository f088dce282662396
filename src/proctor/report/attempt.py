"""One trial as reports count it, wherever it lies: in a ledger or in a plain job directory."""

import msgspec

from proctor.ledger.counting import KEPT, RESTARTED, UNSEALED, find_restarted
from proctor.ledger.entry import TrialEntry, record_digest
from proctor.ledger.head import read_head_of
from proctor.ledger.standing import read_standing
from proctor.record.comparable import RunConditions, TaskConditions


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One attempt of a task. `sealed` makes many at once, by the places of the fields."""

    experiment: str
    trial: str
    record: str
    """SHA-256 of the record's bytes, as the log has them, or as they would be written to a file."""
    status: str
    """sealed, diagnostic (a partial record) or, in a plain job, unsealed; or why it is in no
    number: see `ledger.counting`."""
    dataset: str | None
    task: str | None
    """Null, as all that the record would say, where the entry was withheld."""
    agent: str | None
    revision: str | None
    """Of the agent's adapter."""
    model: str | None
    configuration: str | None
    """Digest of the agent's own settings."""
    run_conditions: RunConditions | None
    task_conditions: TaskConditions | None
    reward: float | None
    """Null: not scored, which is not 0."""
    reason: str | None
    """Why it has no score, from the closed set of reason codes."""
    completeness: str | None
    """complete or partial."""
    source: str | None
    """Where it was brought in from; null: proctor ran it."""
    when: str | None
    """When the trial ran, in UTC."""
    cost_usd: float | None
    """Null: not known, which is not 0."""
    tokens_in: int | None
    tokens_out: int | None
    advisor_calls: int | None
    seconds: float | None
    findings: tuple[str, ...]
    """Codes of its integrity findings."""
    collection: str | None = None
    """The dataset on record, else what the job that ran it calls the place its tasks are from."""
    exception: str | None = None
    """What broke in the trial, if something did; it may have a score all the same."""
    seq: int | None = None
    """Its entry's place in the log; null in a plain job."""
    place: str | None = None
    """Its directory; null in a ledger."""
    review: str | None = None
    """The verdict of its latest review; null: nobody reviewed it."""

    @property
    def name(self) -> str:
        """What it is called everywhere: EXPERIMENT/TRIAL."""
        return f"{self.experiment}/{self.trial}"


def attempt_of(entry: TrialEntry, place: str, status: str = UNSEALED) -> Attempt:
    """The attempt in a trial's directory, from what would be sealed of it.

    Raises:
        DamageError: there is no record in the entry.
    """
    head, standing = read_head_of(entry), read_standing(entry)
    return Attempt(
        experiment=head.experiment_id,
        trial=head.trial_id,
        record=record_digest(entry),
        status=status,
        place=place,
        dataset=head.dataset_id,
        task=head.task.task_id,
        agent=head.agent.adapter,
        revision=standing.revision,
        model=head.agent.model,
        configuration=standing.configuration,
        run_conditions=msgspec.json.decode(standing.run_conditions, type=RunConditions),
        task_conditions=msgspec.json.decode(standing.task_conditions, type=TaskConditions),
        reward=standing.reward,
        reason=entry.reason_code,
        completeness=head.completeness,
        source=standing.source,
        when=head.when,
        cost_usd=standing.cost_usd,
        tokens_in=standing.tokens_in,
        tokens_out=standing.tokens_out,
        advisor_calls=standing.advisor_calls,
        seconds=standing.seconds,
        findings=tuple(standing.findings.split()),
        collection=standing.collection,
        exception=standing.exception,
    )


def with_restarted(attempts: list[Attempt]) -> list[Attempt]:
    """The same attempts, with the status of those whose own trial was run again."""
    # Hardly any attempt is one, and boards ask for a hundred thousand.
    kept: dict[str, list[tuple[str, str]]] = {
        each.experiment: [] for each in attempts if KEPT in each.trial
    }
    if not kept:
        return attempts
    for each in attempts:
        if each.experiment in kept:
            kept[each.experiment].append((each.trial, each.status))
    restarted = {name: find_restarted(trials) for name, trials in kept.items()}
    return [
        msgspec.structs.replace(each, status=RESTARTED)
        if each.trial in restarted.get(each.experiment, ())
        else each
        for each in attempts
    ]
