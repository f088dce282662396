"""State of one trial while it runs: its parts, its phase, and its results so far."""

import asyncio
import logging
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from proctor.files import replace_file
from proctor.harbor.render import written_text
from proctor.harbor.skills import Skill
from proctor.harbor.trial_result import (
    AgentContext,
    ExceptionInfo,
    StepResult,
    TimingInfo,
    TrialResult,
)
from proctor.task.config import StepConfig
from proctor.task.directory import Step
from proctor.traces.writer import Redactor
from proctor.trial.agent import Agent, Kinds
from proctor.trial.changes import ChangeAccount
from proctor.trial.clock import Clock, find_jump
from proctor.trial.environment import Environment, OpenedFile, Watched
from proctor.trial.finding import Finding, FindingCode, render_findings
from proctor.trial.flakes import CleanRoom, Reverification
from proctor.trial.models import ModelAccount
from proctor.trial.network import NetworkPlan, plan_network
from proctor.trial.paths import TrialPaths
from proctor.trial.recording import Recording
from proctor.trial.spec import TrialSpec
from proctor.trial.timeouts import Timeouts, find_timeouts
from proctor.trial.unchanged import Fingerprint

type Watch = Callable[[str], None]


@dataclass(kw_only=True)
class TrialRun:
    """A running trial."""

    spec: TrialSpec
    paths: TrialPaths
    """Paths of its files."""
    kinds: Kinds
    clock: Clock
    watch: Watch
    """Called with the name of each phase."""
    logger: logging.Logger
    redactor: Redactor | None
    result: TrialResult
    recording: Recording
    findings: list[Finding] = field(default_factory=list)
    agent: Agent | None = None
    models: ModelAccount | None = None
    """How its agent reaches models; None if it does not, or by itself."""
    environment: Environment | None = None
    """None until it is created."""
    skills: tuple[Skill, ...] = ()
    """Skills that the job provides to the agent."""
    skills_dir: str | None = None
    """Directory of the skills inside."""
    is_started: bool = False
    is_stopped: bool = False
    has_logs: bool = False
    """Whether the agent's logs were fetched since it last ran."""
    fetched: Fingerprint | None = None
    """Fingerprint of the agent's logs on the host right after they were fetched."""
    has_artifacts: bool = False
    is_done: bool = False
    """Whether it reached the end of its phases."""
    account: ChangeAccount | None = None
    """The agent's changes to the environment, if known."""
    opened: Sequence[OpenedFile] | None = None
    """Files of the verifier opened while the tests ran, if known."""
    clean_room: CleanRoom | None = None
    """The clean-room verification still to run."""
    reverifications: list[Reverification] = field(default_factory=list)
    """States to verify again."""
    phase_name: str = "record"
    _phases: list[tuple[int, str]] = field(default_factory=list)
    """Each phase, with the number of the environment's findings when it began."""

    @property
    def place(self) -> str:
        """The trial's directory, as a string."""
        return str(self.paths.trial_dir)

    @cached_property
    def config_text(self) -> str:
        """The contents of config.json."""
        return self.spec.config.model_dump_json(indent=4)

    @cached_property
    def timeouts(self) -> Timeouts:
        """Time limits of its phases."""
        return find_timeouts(self.spec.config, self.spec.task.config)

    def step_timeouts(self, step: Step) -> Timeouts:
        """Time limits of one step."""
        return find_timeouts(self.spec.config, self.spec.task.config, step.config)

    def network(self, step: Step | None = None) -> NetworkPlan:
        """Which hosts may be reached in each phase."""
        if step is None:
            return self._network
        return self._plan_network(step.config)

    @cached_property
    def _network(self) -> NetworkPlan:
        return self._plan_network(None)

    def _plan_network(self, step: StepConfig | None) -> NetworkPlan:
        config = self.spec.config
        return plan_network(self.spec.task.config, config.agent, config.environment, step)

    def phase(self, name: str, step: Step | None = None) -> "Phase":
        """Return a context manager that reports and records a phase, and checks its clocks."""
        return Phase(self, f"{step.name}: {name}" if step else name)

    def begin_phase(self, name: str) -> None:
        """Report and record that a phase has begun."""
        self.phase_name = name
        watched = self.find_watched()
        self._phases.append((len(watched.findings) if watched else 0, name))
        self.recording.note_phase(self.result, name, watched)
        self.watch(name)

    def add_clock_jump(self, seconds: float) -> None:
        """Add a finding for a wall clock that jumped by this many seconds in this phase."""
        way = "ahead" if seconds > 0 else "back"
        self.add_finding(
            FindingCode.CLOCK_JUMPED,
            f"the wall clock went {abs(seconds):.1f} s {way} during this phase; times in the "
            "trial's files are off by as much",
            seconds=round(seconds, 3),
        )

    def timed(self, timing: TimingInfo) -> "Timed":
        """Return a context manager that records when something began and ended."""
        return Timed(self.clock, timing)

    def add_finding(self, code: FindingCode, message: str, **detail: object) -> None:
        """Add a finding."""
        found = Finding(code=code, phase=self.phase_name, message=message, detail=detail)
        self.findings.append(found)
        self.logger.warning("%s: %s", code, message)

    def find_watched(self) -> Watched | None:
        """The environment, if it has started and describes itself."""
        return self._watched if self.is_started else None

    @cached_property
    def _watched(self) -> Watched | None:
        environment = self.environment
        return environment if environment is not None and isinstance(environment, Watched) else None

    def fail(self, error: BaseException) -> None:
        """Record what ended the trial; only the first exception counts."""
        if self.result.exception_info is not None:
            self.logger.debug(
                "another exception came first; this one is not recorded", exc_info=error
            )
            return
        self.result.exception_info = self.describe(error)
        try:
            text = self.result.exception_info.exception_traceback
            replace_file(self.paths.exception_message_path, text.encode())
        except OSError as refused:
            self.logger.debug("exception.txt could not be written: %s", refused)

    def describe(self, error: BaseException) -> ExceptionInfo:
        """Describe an exception for result.json, without secrets."""
        try:
            message = str(error)
        except Exception:  # noqa: BLE001 - a stranger's exception may not even have a text
            message = ""
        return ExceptionInfo(
            exception_type=type(error).__name__,
            exception_message=self.clean(message),
            exception_traceback=self.clean("".join(traceback.format_exception(error))),
            occurred_at=self.clock.local_now(),
        )

    def clean(self, text: str) -> str:
        """Return text that can be stored: valid Unicode, secrets removed."""
        text = written_text(text)
        return self.redactor.redact_text(text) if self.redactor else text

    def write_findings(self) -> None:
        """Write findings.json: those of earlier attempts, of the environment and of this trial."""
        watched = self.find_watched()
        own = [*self._place(watched.findings if watched else ()), *self.findings]
        if found := [*self.spec.carried, *own]:
            plain = render_findings(found).decode()
            replace_file(self.paths.findings_path, self.clean(plain).encode())

    def _place(self, found: Sequence[Finding]) -> Iterator[Finding]:
        """Assign phases to the environment's findings, which carry none."""
        for place, finding in enumerate(found):
            began = [name for n_before, name in self._phases if n_before <= place]
            yield msgspec.structs.replace(finding, phase=began[-1] if began else finding.phase)


class Phase:
    """Context manager of one phase.

    A class, because a generator-based one takes three times as long.
    """

    def __init__(self, run: TrialRun, name: str) -> None:
        self._run = run
        self._name = name

    def __enter__(self) -> None:
        self._run.begin_phase(self._name)
        self._before = self._run.clock.read()

    def __exit__(self, *_: object) -> None:
        jump = find_jump(self._before, self._run.clock.read())
        if jump is not None:
            self._run.add_clock_jump(jump)


class Timed:
    """Context manager that records when something began and ended."""

    def __init__(self, clock: Clock, timing: TimingInfo) -> None:
        self._clock = clock
        self._timing = timing

    def __enter__(self) -> None:
        self._timing.started_at = self._clock.now()

    def __exit__(self, *_: object) -> None:
        self._timing.finished_at = self._clock.now()


type Target = TrialResult | StepResult
"""Owner of agent and verifier results: the trial, or a step."""


def host_variables() -> Mapping[str, str]:
    """The environment variables of the host."""
    return os.environ


def checked_context(context: AgentContext, logger: logging.Logger) -> AgentContext:
    """Return an agent's context without values that cannot be stored."""
    if context.is_empty():
        return context
    said: dict[str, Any] = dict(context.__dict__)
    for name, value in said.items():
        if value is None:
            continue
        try:
            part = AgentContext.model_validate({name: value})
            if name == "metadata":
                part = AgentContext.model_validate_json(part.model_dump_json(warnings=False))
            said[name] = getattr(part, name)
        except ValueError as error:
            logger.warning("the agent's %s cannot be used: %s", name, error)
            said[name] = None
    return AgentContext.model_construct(None, **said)


# Stops whose trial was cancelled. asyncio keeps only weak references to tasks, so they are held
# here until they finish.
_STOPPING: set[asyncio.Task[None]] = set()


async def stop_environment(run: TrialRun) -> None:
    """Stop the environment; a failure becomes the trial's exception unless it has one."""
    environment = run.environment
    if run.is_stopped or environment is None:
        return
    run.is_stopped = True
    delete = run.spec.config.environment.delete
    stopping = asyncio.ensure_future(environment.stop(delete=delete))
    _STOPPING.add(stopping)
    stopping.add_done_callback(_STOPPING.discard)
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        run.logger.debug("cancelled while the environment was being stopped; stopping it continues")
        raise
    except Exception as error:  # noqa: BLE001 - an environment may raise anything
        run.logger.debug("the environment could not be stopped: %s", error)
        run.fail(error)
