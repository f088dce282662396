"""Plan a job: its tasks, its slots, and whether each is kept, run or redone.

Planning reads and decides. It may fetch tasks of a registry into harbor's cache; it writes nothing
to the job's directory.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random
from urllib.parse import quote_from_bytes
from uuid import UUID

import msgspec

from proctor.agents.foreign import find_carrier
from proctor.agents.kinds import check_agent, find_command_pin, find_revision
from proctor.digest import sha256_hex
from proctor.environments.kinds import check_type
from proctor.errors import JobError, PolicyError
from proctor.gateway.recordings import Recording
from proctor.harbor.configs import EnvironmentConfig, JobConfig
from proctor.harbor.declared import DeclaredMetric
from proctor.job.existing import Existing
from proctor.job.fetching import Report
from proctor.job.foreign import ExpectedConfig, expected_config
from proctor.job.gateway import find_given, find_slot_recordings
from proctor.job.images import ImageFetching, fetch_images, find_images
from proctor.job.metrics import find_metrics
from proctor.job.planned import Resolved
from proctor.job.resume import Decision, Places, RerunRules, SlotAction, decide, place_slots
from proctor.job.settings import ModelSettings, Settings
from proctor.job.slots import Slot, make_slots, new_trial_name, trial_config
from proctor.job.store import ChosenEnvironment, NamedSlot
from proctor.job.tasks import resolve_tasks
from proctor.task.directory import Task
from proctor.trial.spec import RecordFields, TrialSpec

# `-n auto`: how many trials fit on this machine at once, given the most demanding task


_KIB_PER_MB = 1024


def size_concurrency(
    *,
    nproc: int,
    mem_total_kib: int,
    task_cpus: float = 1.0,
    task_memory_mb: int = 2048,
    cap: int | None = None,
) -> int:
    """Return how many trials fit by processors and memory of the most demanding task, up to `cap`.

    At least 1, even if no task fits, and never more than there are processors.

    Raises:
        PolicyError: a task asks for no processor or no memory.
    """
    if task_cpus <= 0 or task_memory_mb <= 0:
        raise PolicyError(
            f"a task asks for {task_cpus} cpus and {task_memory_mb} MiB; expected more than 0"
        )
    by_processor = math.floor(nproc / task_cpus)
    by_memory = mem_total_kib // (task_memory_mb * _KIB_PER_MB)
    fits = min(by_processor, by_memory, nproc)
    return max(1, fits if cap is None else min(fits, cap))


_DEFAULT_CPUS = 1
_DEFAULT_MEMORY_MB = 2048
_MEMORY = Path("/proc/meminfo")
_KIB = 1024


def find_concurrency(tasks: Iterable[Task], environment: EnvironmentConfig) -> int:
    """Return how many trials fit at once.

    Each gets what the most demanding task asks for, or 1 CPU and 2 GB.
    """
    wanted = [task.config.environment for task in tasks]
    cpus = environment.override_cpus or max(
        (table.cpus or _DEFAULT_CPUS for table in wanted), default=_DEFAULT_CPUS
    )
    memory = environment.override_memory_mb or max(
        (table.memory_mb or _DEFAULT_MEMORY_MB for table in wanted), default=_DEFAULT_MEMORY_MB
    )
    return size_concurrency(
        nproc=len(os.sched_getaffinity(0)),
        mem_total_kib=find_memory() // _KIB,
        task_cpus=cpus,
        task_memory_mb=memory,
    )


def find_memory() -> int:
    """Bytes of memory of this machine; 0 if unknown."""
    for line in _MEMORY.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * _KIB
    return 0


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a job, independent of its directory."""

    config: JobConfig
    """Includes the values of secrets."""
    settings: Settings
    resolved: Resolved
    slots: Sequence[Slot]
    metrics: Mapping[str, Sequence[DeclaredMetric]]
    records: Sequence[RecordFields]
    """One for each agent of the config."""
    environment: ChosenEnvironment
    recordings: Mapping[int, Recording] = msgspec.field(default_factory=dict)
    """The recording that answers the requests of a slot's agent, by the slot's index."""
    pulled: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Digests of the images of registries that the tasks run on, by name."""


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its location."""

    prepared: Prepared
    existing: Existing
    directory: Path
    """Absolute."""
    trials_dir: Path
    """The same directory as the config spells it."""
    uri: str
    """The same directory with links resolved."""
    cwd: Path
    """Base of relative paths."""
    job_id: UUID
    started_at: datetime
    decisions: Sequence[Decision]
    """One for each slot, in plan order."""
    unplanned: Sequence[NamedSlot]
    """Trials of earlier plans that match no slot any more."""
    strangers: Sequence[str]
    """Directories that do not belong to this job."""

    @property
    def todo(self) -> list[Decision]:
        """The slots to run."""
        return [decision for decision in self.decisions if decision.deed is not SlotAction.KEEP]

    @property
    def named_slots(self) -> list[NamedSlot]:
        """The slots with the names of their trials."""
        return [
            NamedSlot(decision.slot.index, decision.slot.key, decision.trial)
            for decision in self.decisions
        ]

    def make_spec(self, decision: Decision, attempt: int) -> TrialSpec:
        """Make the trial of a slot, for an attempt."""
        slot, prepared = decision.slot, self.prepared
        recording = prepared.recordings.get(slot.index)
        record = prepared.records[slot.index % len(prepared.records)]
        return TrialSpec(
            config=trial_config(slot, decision.trial, self.trials_dir, self.job_id),
            uri=f"{self.uri}/{quote_from_bytes(os.fsencode(decision.trial))}",
            task=slot.planned.task,
            digests=slot.planned.digests,
            # The user's dataset id wins over the dataset's own.
            record=replace(record, dataset_id=record.dataset_id or slot.planned.dataset_id),
            is_harbor_compatible=prepared.settings.verifier_compat is not None,
            verify_again=prepared.settings.verify_again,
            clean_room=prepared.settings.clean_room,
            gateway=prepared.settings.models.gateway,
            replay=recording.files if recording else (),
            attempt=attempt,
        )


def check_kinds(config: JobConfig, models: ModelSettings) -> None:
    """Check that the agents and the environment exist."""
    for agent in config.agents:
        check_agent(agent, find_given(models))
    if config.environment.import_path is None:
        check_type(config.environment.type or "")


class Fetching(msgspec.Struct, frozen=True, kw_only=True):
    """What is fetched for a job before it begins."""

    report: Report
    """Called with messages about tasks that are fetched."""
    images: ImageFetching | None
    """None: none is fetched."""
    begun: Mapping[str, str] | None
    """Digests of the images that a job was begun on, by name; None for a new job."""


async def prepare(
    config: JobConfig,
    settings: Settings,
    environment: ChosenEnvironment,
    host: Mapping[str, str],
    *,
    is_auto: bool,
    fetching: Fetching,
) -> Prepared:
    """Find a job's tasks, fetch the images that they need, and make its slots."""
    resolved = await resolve_tasks(config, settings, host=host, report=fetching.report)
    tasks = [one.task for one in resolved.tasks]
    await fetch_images(config.environment, tasks, fetching.images, fetching.begun, host)
    if is_auto:
        fitting = find_concurrency(tasks, config.environment)
        config = config.model_copy(update={"n_concurrent_trials": fitting})
    records = make_records(config, settings)
    slots, pulled = _pin(make_slots(config, resolved), config, records)
    return Prepared(
        config=config,
        settings=settings,
        resolved=resolved,
        slots=slots,
        metrics=find_metrics(config, resolved),
        records=records,
        environment=environment,
        recordings=find_slot_recordings(settings.models, slots),
        pulled=pulled,
    )


def _pin(
    slots: Sequence[Slot], config: JobConfig, records: Sequence[RecordFields]
) -> tuple[Sequence[Slot], Mapping[str, str]]:
    """Add the revision of the agent and the image, if known, to the keys of the slots.

    Returns also the digests of the images that were pulled, by name.
    """
    agents = dict(zip(map(id, config.agents), records, strict=True))
    images: dict[int, str | None] = {}
    pulled: dict[str, str] = {}
    keys: dict[str, str] = {}
    pinned = []
    for slot in slots:
        planned = slot.planned
        if id(planned) not in images:
            found = find_images(config.environment, planned.task)
            images[id(planned)] = ", ".join(image.pin for image in found) or None
            pulled.update({image.name: image.digest for image in found if image.layers})
        revision, image = agents[id(slot.agent)].pin, images[id(planned)]
        if revision is None and image is None:
            pinned.append(slot)
            continue
        whole = f"{slot.key}\n{revision}\n{image}"
        if whole not in keys:
            keys[whole] = sha256_hex(whole.encode())
        pinned.append(replace(slot, key=keys[whole]))
    return pinned, pulled


def make_records(config: JobConfig, settings: Settings) -> list[RecordFields]:
    """Make the fields of the records that trials do not know, for each agent.

    Raises:
        JobError: the system prompt cannot be read.
        AgentError: an agent's revision cannot be determined.
    """
    prompt = None
    if settings.system_prompt is not None:
        try:
            prompt = settings.system_prompt.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise JobError(f"{settings.system_prompt}: no system prompt: {error}") from error
    return [
        RecordFields(
            experiment=settings.experiment or config.job_name,
            dataset_id=settings.dataset_id,
            adaptation=settings.adaptation,
            system_prompt=prompt,
            adapter_revision=find_revision(agent, settings.agent_version_command),
            adapter_carrier=find_carrier(agent),
            command_pin=find_command_pin(agent),
        )
        for agent in config.agents
    ]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Location of a job."""

    directory: Path
    """Absolute."""
    trials_dir: Path
    """The same directory as the config spells it."""
    cwd: Path
    """Base of relative paths."""


def plan_job(prepared: Prepared, existing: Existing, place: Place, also: frozenset[str]) -> JobPlan:
    """Decide for every slot whether it is kept, run or redone, by the job's files."""
    job_id = existing.job_id
    known = [*existing.state.slots, *existing.state.unplanned] if existing.state else []
    seen: dict[tuple[int, int], ExpectedConfig] = {}

    def expect(slot: Slot) -> ExpectedConfig:
        # Attempts at one task by one agent have the same config, so it is made once.
        same = (id(slot.planned), id(slot.agent))
        if same not in seen:
            config = trial_config(slot, "?", place.trials_dir, job_id)
            seen[same] = expected_config(config, slot.planned.digests.task_checksum)
        return seen[same]

    places = place_slots(prepared.slots, place.directory, known, expect)
    _check_none_lost(prepared, existing, places)
    return JobPlan(
        prepared=prepared,
        existing=existing,
        directory=place.directory,
        trials_dir=place.trials_dir,
        uri=Path(os.path.realpath(place.directory)).as_uri(),
        cwd=place.cwd,
        job_id=job_id,
        started_at=existing.started_at,
        decisions=_decide_all(prepared, places, place.directory, also),
        unplanned=places.unplanned,
        strangers=places.strangers,
    )


def _check_none_lost(prepared: Prepared, existing: Existing, places: Places) -> None:
    """Refuse to re-plan a job if one of its earlier tasks is temporarily unreadable."""
    state = existing.state
    refused_then = state.refused if state else ()
    refused = [one for one in prepared.resolved.refused if str(one.path) not in refused_then]
    planned_then = {named.trial for named in state.slots} if state else set(places.foreign)
    if refused and existing.config is not None and planned_then.difference(places.names):
        listed = "; ".join(f"{one.path}: {one.reason}" for one in refused)
        raise JobError(
            f"a task of the job cannot be run any more, and its trials would not be counted: "
            f"{listed}. Put it back as it was"
        )


def _decide_all(
    prepared: Prepared, places: Places, directory: Path, also: frozenset[str]
) -> list[Decision]:
    again = RerunRules(also, prepared.config.retry)
    # Include directories that are not trials: a new trial must not use one of them.
    taken = {*places.present, *filter(None, places.names)}
    decisions = []
    rng = Random()  # noqa: S311 - names, not secrets
    for slot, found in zip(prepared.slots, places.names, strict=True):
        name = found or new_trial_name(slot.planned.name, rng, taken)
        taken.add(name)
        if name in places.present:
            decisions.append(decide(slot, name, f"{directory}/{name}", again))
        else:
            decisions.append(Decision(slot, name, SlotAction.RUN, "not started yet"))
    return decisions
