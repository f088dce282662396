"""What a job would do: which slots it would run, keep and redo, and why. Nothing is written.

Tasks of a registry are fetched into harbor's cache all the same: without them there is no plan.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proctor.environments.kinds import check_options
from proctor.job.options import JobOptions, ResumeOptions
from proctor.job.planned import RefusedTask
from proctor.job.planning import JobPlan
from proctor.job.request import Request, opened_job, request_resume, request_run
from proctor.job.resume import Decision, SlotAction, find_idle
from proctor.job.sealing import check_belonging
from proctor.job.store import ChosenEnvironment


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done."""

    directory: Path
    """The job's."""
    is_begun: bool
    """The job is there already."""
    decisions: Sequence[Decision]
    """One for each slot, in the order in which they would be run. Names of trials that are not
    there yet would be others."""
    refused: Sequence[RefusedTask]
    unplanned: Sequence[str]
    """Trials that would be kept and counted in nothing."""
    strangers: Sequence[str]
    """Directories that would be left alone."""
    notes: Sequence[str]
    environment: ChosenEnvironment
    n_concurrent: int

    def count(self, deed: SlotAction) -> int:
        """Slots about which this would be done."""
        return Counter(decision.deed for decision in self.decisions)[deed]


async def preview_run(options: JobOptions) -> Preview:
    """What `run_job` would do.

    Raises:
        InputError: something that was asked for cannot be had.
    """
    request = await request_run(options)
    return _preview(request, request.plan())


async def preview_resume(directory: Path, options: ResumeOptions) -> Preview:
    """What `resume_job` would do.

    Raises:
        InputError: something that the job needs cannot be had.
    """
    with opened_job(directory) as job:
        request = await request_resume(job, options)
        return _preview(request, request.plan())


def _preview(request: Request, plan: JobPlan) -> Preview:
    check_belonging(request)
    if plan.todo:
        check_options(plan.prepared.config.environment)
    return Preview(
        directory=plan.directory,
        is_begun=request.is_begun,
        decisions=plan.decisions,
        refused=plan.prepared.resolved.refused,
        unplanned=[named.trial for named in plan.unplanned],
        strangers=plan.strangers,
        notes=[*plan.prepared.resolved.notes, *find_idle(request.also, plan.decisions)],
        environment=plan.prepared.environment,
        n_concurrent=request.n_concurrent,
    )
