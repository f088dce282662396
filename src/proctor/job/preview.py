"""Show what a job would do: which slots it would run, keep and redo, and why. Runs no trial.

Tasks of a registry are still fetched into harbor's cache: they are needed for the plan. Registries
of images are only asked how much there is to download.
"""

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proctor.environments.kinds import check_options
from proctor.job.options import JobOptions, ResumeOptions
from proctor.job.planned import RefusedTask
from proctor.job.planning import JobPlan
from proctor.job.request import Request, opened_job, request_resume, request_run
from proctor.job.resume import Decision, SlotAction, find_unmatched
from proctor.job.sealing import check_belonging
from proctor.job.store import ChosenEnvironment

if TYPE_CHECKING:
    from proctor.job.needs import JobNeeds, TaskNeeds


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a job would do."""

    directory: Path
    """The job's directory."""
    is_begun: bool
    """Whether the job exists already."""
    decisions: Sequence[Decision]
    """One for each slot, in execution order. New trials will get different names."""
    refused: Sequence[RefusedTask]
    unplanned: Sequence[str]
    """Trials that would be kept but not counted."""
    tasks: Sequence["TaskNeeds"]
    """What each task needs that has trials to run, and whether it can be run here."""
    download_bytes: int | None
    """Size of all layers to be pulled; those that images share count once. None: unknown."""
    strangers: Sequence[str]
    """Directories that would be left alone."""
    notes: Sequence[str]
    environment: ChosenEnvironment
    n_concurrent: int | None
    """None: as many as fit on a cluster, which is not asked."""

    def count(self, deed: SlotAction) -> int:
        """Number of slots with this action."""
        return Counter(decision.deed for decision in self.decisions)[deed]


async def preview_run(options: JobOptions) -> Preview:
    """What `run_job` would do."""
    request = await request_run(options)
    return await _preview(request, request.plan())


async def preview_resume(directory: Path, options: ResumeOptions) -> Preview:
    """What `resume_job` would do."""
    with opened_job(directory) as job:
        request = await request_resume(job, options, is_run=False)
        return await _preview(request, request.plan())


async def _preview(request: Request, plan: JobPlan) -> Preview:
    check_belonging(request)
    if plan.todo:
        check_options(plan.prepared.config.environment)
    unplanned = [named.trial for named in plan.unplanned]
    needs = await _find_needs(request, plan)
    unmatched = find_unmatched(request.options.also, plan.decisions, plan.directory, unplanned)
    return Preview(
        directory=plan.directory,
        is_begun=request.is_begun,
        decisions=plan.decisions,
        refused=plan.prepared.resolved.refused,
        unplanned=unplanned,
        tasks=needs.tasks,
        download_bytes=needs.download_bytes,
        strangers=plan.strangers,
        notes=[*plan.prepared.resolved.notes, *unmatched, *needs.notes],
        environment=plan.prepared.environment,
        n_concurrent=request.n_concurrent,
    )


async def _find_needs(request: Request, plan: JobPlan) -> "JobNeeds":
    # Imported late: most runs are no dry runs.
    module = import_module("proctor.job.needs")
    is_here = request.options.open_executor is None
    found: JobNeeds = await module.find_needs(
        plan, request.fetching, request.options.host, is_here=is_here
    )
    return found
