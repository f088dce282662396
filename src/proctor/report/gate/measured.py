"""A job directory or an experiment of a ledger, as the trials behind its numbers.

Rewards come from the same source as every score: the reward files of a job, the certificates of
sealed trials. Damage of the evidence is collected, not raised.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor.audit.certificate import certified_column
from proctor.audit.findings import Finding
from proctor.audit.job import audit_job
from proctor.errors import DamageError, InputError, JobError
from proctor.harbor.job import Watch, load_job
from proctor.harbor.trial import FoundTrial
from proctor.ledger.claims.claiming import ClaimOptions, make_claim
from proctor.ledger.claims.trials import Scope
from proctor.ledger.place import open_reader
from proctor.ledger.query import load_position
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.verification.steps import Progress
from proctor.ledger.verification.verify import verify_ledger
from proctor.record.reasons import reason_for_exception
from proctor.report.in_jobs import load_jobs, make_row
from proctor.reward.number import Rewards
from proctor.sentence import count_of

NO_REASON = "unknown"


class MeasuredTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial that counts."""

    row: TrialRow
    group: str
    """Its evals key: agent, model, dataset."""
    rewards: Rewards | None
    """All of them; the row has one. Null: not scored, which harbor counts as 0."""

    @property
    def task(self) -> str:
        """The task that it ran."""
        return self.row.task_id or ""

    @property
    def exception(self) -> str | None:
        """Name of the exception class on record."""
        return self.row.exception

    @property
    def reason(self) -> str | None:
        """Reason code of a trial that has no reward."""
        if self.rewards:
            return None
        return self.row.reason_code or reason_for_exception(self.exception) or NO_REASON

    @property
    def revision(self) -> str | None:
        """Revision of the task."""
        return self.row.task_conditions.revision if self.row.task_conditions else None


@dataclass(slots=True, kw_only=True)
class Measured:
    """A job or an experiment."""

    name: str
    kind: str
    """job or experiment."""
    place: str
    """The directory of the job or of the ledger."""
    trials: list[MeasuredTrial] = field(default_factory=list)
    """Those that ran and count, in the order they are added up."""
    planned: int | None = None
    """Trials to be run; None if unknown."""
    broken: int = 0
    """Trials whose result cannot be read; they do not count."""
    withheld: int = 0
    """Withheld trials; they do not count."""
    superseded: int = 0
    """Superseded or restarted trials; they do not count."""
    attempts: int = 0
    """The restarted ones among these."""
    is_over: bool = True
    """Whether it finished, as far as is known."""
    damage: list[str] = field(default_factory=list)
    """Damage of the evidence, in sentences."""
    unshown: list[str] = field(default_factory=list)
    """Published numbers that cannot be recomputed from the evidence, in sentences."""
    notes: list[str] = field(default_factory=list)

    @property
    def run(self) -> int:
        """Trials with a readable result."""
        return len(self.trials)

    @property
    def not_run(self) -> int | None:
        """Planned and not found; None if no plan is known."""
        if self.planned is None:
            return None
        return self.planned - self.run - self.broken - self.withheld

    @property
    def denominators(self) -> dict[str, int | None]:
        """The numbers of trials by status; None: unknown."""
        names = (
            "planned", "run", "broken", "not_run", "withheld", "superseded", "attempts",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    @property
    def groups(self) -> dict[str, list[MeasuredTrial]]:
        """The trials by group."""
        found: dict[str, list[MeasuredTrial]] = {}
        for trial in self.trials:
            found.setdefault(trial.group, []).append(trial)
        return found


def measure_job(path: str, *, check_evidence: bool = False, watch: Watch | None = None) -> Measured:
    """Read the job in a directory; with check_evidence, its published numbers are audited."""
    job = load_job(path, watch=watch)
    rows = _load_rows(path)
    measured = Measured(
        name=job.name,
        kind="job",
        place=path,
        trials=[_measure(found, rows, job.name) for found in job.trials],
        planned=job.n_planned,
        broken=len(job.broken),
        is_over=job.finished,
        damage=[problem.message for problem in [*job.problems, *job.broken]],
    )
    over = -(measured.not_run or 0)
    if over > 0:
        trials = count_of(over, "trial")
        measured.damage.append(f"{path}: {trials} more than planned; `proctor audit` names them")
    if check_evidence:
        audit = audit_job(path)
        measured.damage += list(_to_sentences(audit.differences, measured.damage))
        measured.unshown = list(_to_sentences(audit.unshown, []))
    return measured


def _load_rows(path: str) -> dict[str | None, TrialRow]:
    """Rows with costs, times and reasons, by the trial's directory."""
    try:
        return {each.place: each for each in load_jobs(path).trials}
    except JobError:
        # Its lock.json is damaged, which the job's problems report; its rewards are still readable.
        return {}


def _measure(found: FoundTrial, rows: dict[str | None, TrialRow], job: str) -> MeasuredTrial:
    trial = found.trial
    # Without a row no record of it can be made; its result is still readable.
    row = rows.get(found.directory) or make_row(found, job, name=trial.name)
    rewards = trial.verdict.rewards if trial.verdict else None
    return MeasuredTrial(row=row, group=trial.evals_key, rewards=rewards)


def _to_sentences(findings: list[Finding], known: list[str]) -> Iterator[str]:
    """Findings of an audit as sentences, except those in `known`."""
    for finding in findings:
        if not any(finding.message in sentence for sentence in known):
            yield f"{finding.path}: {finding.message} ({finding.kind})"


def measure_experiment(
    directory: Path,
    experiment: str,
    *,
    planned: int | None = None,
    check_evidence: bool = False,
    progress: Progress | None = None,
) -> Measured:
    """Read an experiment of a verified ledger; with check_evidence, artifacts are verified too.

    Raises:
        LedgerError: there is no ledger, no such experiment in it, or more trials than planned.
    """
    measured = Measured(name=experiment, kind="experiment", place=str(directory), planned=planned)
    try:
        verified = verify_ledger(directory, fast=not check_evidence, progress=progress)
    except DamageError as error:
        measured.damage.append(str(error))
        return measured
    measured.damage = [f"{each.kind}: {each.where}: {each.message}" for each in verified.damage]
    try:
        with open_reader(directory) as ledger:
            _count_entries(ledger, measured)
    except DamageError as error:
        measured.damage.append(str(error))
    except InputError:
        # In a damaged ledger, what is not found may be what was damaged.
        if not measured.damage:
            raise
    return measured


def _count_entries(ledger: LedgerReader, measured: Measured) -> None:
    options = ClaimOptions(scope=Scope(measured.name), planned=measured.planned)
    claim = make_claim(ledger, options, ledger.refresh())
    position = load_position(ledger, experiment=measured.name)
    rows = {each.trial_id: each for each in position.trials}
    measured.withheld = claim.counts.withheld
    measured.superseded = claim.counts.superseded + claim.counts.attempts
    measured.attempts = claim.counts.attempts
    if partial := claim.counts.counted_diagnostic:
        records = count_of(partial, "partial record")
        measured.notes.append(f"{records} among the counted trials (diagnostic)")
    for group in claim.certificate.groups:
        measured.trials += [
            MeasuredTrial(row=rows[trial.trial], group=group.key, rewards=rewards)
            for trial, rewards in zip(group.trials, certified_column(group).rewards, strict=True)
        ]
