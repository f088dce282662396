"""A job directory or an experiment of a ledger, as the trials behind its numbers.

Rewards come from the same source as every score: the reward files of a job, the certificates of
sealed trials. Damage of the evidence is collected, not raised.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from proctor.audit.certificate import certified_column
from proctor.audit.findings import Finding
from proctor.audit.job import audit_job
from proctor.errors import DamageError, InputError, JobError
from proctor.harbor.job import Watch, load_job
from proctor.ledger.claims.claim import ClaimOptions, make_claim
from proctor.ledger.claims.trials import Scope
from proctor.ledger.place import open_reader
from proctor.ledger.query import load_position
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow
from proctor.ledger.verification.steps import Progress
from proctor.ledger.verification.verify import verify_ledger
from proctor.record.comparable import UNKNOWN
from proctor.record.reasons import reason_for_exception
from proctor.report.in_jobs import load_jobs, make_row
from proctor.reward.number import Number, Rewards
from proctor.sentence import count_of


class Trial(msgspec.Struct, frozen=True, kw_only=True):
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
        return self.row.reason_code or reason_for_exception(self.exception) or "unknown"

    @property
    def revision(self) -> str | None:
        """Revision of the task; None if unknown."""
        found = self.row.task_conditions
        return found.revision if found and found.revision != UNKNOWN else None

    def value(self, reward_key: str | None) -> Number | None:
        """Its reward of this key, or its only one; None if it has none."""
        if not self.rewards:
            return None
        if reward_key is None:
            return next(iter(self.rewards.values()))
        return self.rewards.get(reward_key)


class Run(msgspec.Struct, kw_only=True):
    """A job or an experiment. Only `trials` count, in the order they are added up."""

    name: str
    kind: str
    """job or experiment."""
    place: str
    """The directory of the job or of the ledger."""
    trials: list[Trial] = []
    planned: int | None = None
    """Trials to be run; None if unknown."""
    broken: int = 0
    """Trials whose result cannot be read."""
    withheld: int = 0
    superseded: int = 0
    """Superseded or restarted trials."""
    attempts: int = 0
    """The restarted ones among these."""
    is_over: bool = True
    """Whether it finished, as far as is known."""
    damage: list[str] = []
    """Damage of the evidence, in sentences."""
    unshown: list[str] = []
    """Published numbers that cannot be recomputed from the evidence, in sentences."""
    notes: list[str] = []

    @property
    def not_run(self) -> int | None:
        """Planned and not found; None if no plan is known."""
        if self.planned is None:
            return None
        return self.planned - len(self.trials) - self.broken - self.withheld

    @property
    def denominators(self) -> dict[str, int | None]:
        """The numbers of trials by status; None: unknown."""
        return {
            "planned": self.planned,
            "run": len(self.trials),
            "broken": self.broken,
            "not_run": self.not_run,
            "withheld": self.withheld,
            "superseded": self.superseded,
            "attempts": self.attempts,
        }

    @property
    def groups(self) -> dict[str, list[Trial]]:
        """The trials by group."""
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.group, []).append(trial)
        return found

    @property
    def missing(self) -> list[str]:
        """Why it is not complete, in phrases."""
        found = []
        if (self.not_run or 0) > 0:
            found.append(f"{self.not_run} of {self.planned} planned trials did not run")
        if self.broken:
            found.append(f"{count_of(self.broken, 'trial')} cannot be read")
        if self.withheld:
            found.append(f"{count_of(self.withheld, 'trial')} withheld")
        if not self.is_over:
            found.append("the job did not finish, or is still running")
        return found


def load_job_run(path: str, *, check_evidence: bool = False, watch: Watch | None = None) -> Run:
    """Read the job in a directory; with check_evidence, its published numbers are audited."""
    job = load_job(path, watch=watch)
    try:
        rows = {each.place: each for each in load_jobs(path).trials}
    except JobError:
        # Its lock.json is damaged, which the job's problems report; its rewards are still readable.
        rows = {}
    run = Run(
        name=job.name,
        kind="job",
        place=path,
        trials=[
            Trial(
                # Without a row no record of it can be made; its result is still readable.
                row=rows.get(found.directory) or make_row(found, job.name, name=found.trial.name),
                group=found.trial.evals_key,
                rewards=found.trial.verdict.rewards if found.trial.verdict else None,
            )
            for found in job.trials
        ],
        planned=job.n_planned,
        broken=len(job.broken),
        is_over=job.finished,
        damage=[problem.message for problem in [*job.problems, *job.broken]],
    )
    if (over := -(run.not_run or 0)) > 0:
        trials = count_of(over, "trial")
        run.damage.append(f"{path}: {trials} more than planned; `proctor audit` names them")
    if check_evidence:
        audit = audit_job(path)
        run.damage += _render_findings(audit.differences, run.damage)
        run.unshown = _render_findings(audit.unshown, [])
    return run


def _render_findings(findings: Sequence[Finding], known: Sequence[str]) -> list[str]:
    """Findings of an audit as sentences, except those in `known`."""
    return [
        f"{each.path}: {each.message} ({each.kind})"
        for each in findings
        if not any(each.message in sentence for sentence in known)
    ]


def load_experiment_run(
    directory: Path,
    experiment: str,
    *,
    planned: int | None = None,
    check_evidence: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Read an experiment of a verified ledger; with check_evidence, artifacts are verified too.

    Raises:
        LedgerError: there is no ledger, no such experiment in it, or more trials than planned.
    """
    run = Run(name=experiment, kind="experiment", place=str(directory), planned=planned)
    try:
        verified = verify_ledger(directory, fast=not check_evidence, progress=progress)
        run.damage = [f"{each.kind}: {each.where}: {each.message}" for each in verified.damage]
        with open_reader(directory) as ledger:
            _add_sealed(run, ledger)
    except DamageError as error:
        run.damage.append(str(error))
    except InputError:
        # In a damaged ledger, what is not found may be what was damaged.
        if not run.damage:
            raise
    return run


def _add_sealed(run: Run, ledger: LedgerReader) -> None:
    options = ClaimOptions(scope=Scope(run.name), planned=run.planned)
    claim = make_claim(ledger, options, ledger.refresh())
    position = load_position(ledger, experiment=run.name)
    rows = {each.trial_id: each for each in position.trials}
    run.withheld = claim.counts.withheld
    run.superseded = claim.counts.superseded + claim.counts.attempts
    run.attempts = claim.counts.attempts
    if partial := claim.counts.counted_diagnostic:
        records = count_of(partial, "partial record")
        run.notes.append(f"{records} among the counted trials (diagnostic)")
    for group in claim.certificate.groups:
        run.trials += [
            Trial(row=rows[trial.trial], group=group.key, rewards=rewards)
            for trial, rewards in zip(group.trials, certified_column(group).rewards, strict=True)
        ]
