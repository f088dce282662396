"""One task directory: its config, instructions and scripts, and why harbor would reject it.

    load_task(path)      the task as a value, or a TaskError
    find_faults(path)    every reason for which harbor skips the directory

Does not hash, run or write anything.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TaskError
from proctor.task.config import StepConfig, TaskConfig
from proctor.task.parse import load_config, read_text
from proctor.task.presence import is_there

CONFIG = "task.toml"
INSTRUCTION = "instruction.md"


class Step(msgspec.Struct, frozen=True):
    """One step of a multi-step task."""

    config: StepConfig
    """Its entry in task.toml."""
    directory: Path
    """steps/NAME."""
    instruction: str
    """The agent's prompt, without canary lines."""

    @property
    def name(self) -> str:
        """Its name, which is also that of its directory."""
        return self.config.name

    @property
    def workdir(self) -> Path:
        """Files for the working directory, optionally with a setup.sh. May not exist."""
        return self.directory / "workdir"


class Task(msgspec.Struct, frozen=True):
    """A task that harbor accepts."""

    directory: Path
    """Its path: absolute, links resolved."""
    config: TaskConfig
    """task.toml."""
    instruction: str
    """The agent's prompt, without canary lines; empty in a multi-step task."""
    steps: tuple[Step, ...] = ()
    """The steps of a multi-step task, in order."""
    notes: tuple[Diagnostic, ...] = ()
    """Notes about its config, such as unknown keys."""

    @property
    def name(self) -> str:
        """The name in [task], else the directory's name: `task_name` of a trial's result."""
        return _name(self.directory, self.config)

    @property
    def short_name(self) -> str:
        """The name without its organisation."""
        return self.config.task.short_name if self.config.task else self.directory.name

    @property
    def environment_directory(self) -> Path:
        """What the environment is built from."""
        return self.directory / "environment"

    def find_test_script(self, step: Step | None = None) -> Path | None:
        """The test script of the task or of one step: the step's own, else the shared one."""
        places = [step.directory, self.directory] if step else [self.directory]
        return next(filter(None, (_find_test(place, self.config) for place in places)), None)

    def find_solution_script(self, step: Step | None = None) -> Path | None:
        """The reference solution of the task or of one step."""
        place = step.directory if step else self.directory
        return _find_script(place / "solution", "solve", self.config)


def load_task(path: Path, *, verifying: bool = True) -> Task:
    """Load the task in a directory; with `verifying=False` it needs no test script.

    Raises:
        TaskError: harbor would reject it, or an instruction cannot be read.
    """
    directory, config, found = _examine(path, verifying=verifying)
    faults = [diagnostic for diagnostic in found if diagnostic.is_problem]
    if faults or config is None:
        reasons = "; ".join(map(str, faults))
        raise TaskError(f"{path}: not a valid task: {reasons}")
    steps = tuple(
        Step(step, where := directory / "steps" / step.name, _load_instruction(where))
        for step in config.steps or ()
    )
    instruction = "" if steps else _load_instruction(directory)
    return Task(directory, config, instruction, steps, tuple(found))


def find_faults(path: Path, *, verifying: bool = True) -> list[Diagnostic]:
    """List every reason for which harbor rejects a directory, in the order of its checks.

    Empty if harbor accepts it. harbor skips a rejected directory, unless the code of the first
    reason is in `ENDS_JOB`. `verifying=False`, for `--disable-verification`, requires no tests.
    """
    _, _, found = _examine(path, verifying=verifying)
    return [diagnostic for diagnostic in found if diagnostic.is_problem]


def find_name(path: Path) -> str:
    """Name the task in a directory as harbor does, even if harbor would reject it."""
    directory, config, _ = _examine(path, verifying=False)
    return _name(directory, config)


def strip_canary(text: str) -> str:
    """An instruction without the canary comments at its top and the blank lines below them."""
    lines = text.split("\n")
    first = 0
    while first < len(lines) and _is_canary(lines[first].strip()):
        first += 1
    while first < len(lines) and not lines[first].strip():
        first += 1
    return "\n".join(lines[first:])


def _name(directory: Path, config: TaskConfig | None) -> str:
    return config.task.name if config and config.task else directory.name


def _is_canary(line: str) -> bool:
    if line.startswith("<!--") and line.endswith("-->"):
        return "canary" in line[4:-3].lower()
    return line.startswith("#") and "canary" in line.lower()


def _load_instruction(directory: Path) -> str:
    path = directory / INSTRUCTION
    try:
        return strip_canary(read_text(path))
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: not UTF-8: {error.reason} at offset {error.start}") from error


def _examine(path: Path, *, verifying: bool) -> tuple[Path, TaskConfig | None, list[Diagnostic]]:
    directory = Path(os.path.realpath(path))
    found: list[Diagnostic] = []
    config = None
    try:
        found += _find_absent(directory)
        if not any(fault.code == "missing-config" for fault in found):
            parsed = load_config(directory / CONFIG)
            config = parsed.config
            found += parsed.diagnostics
        if config:
            found.extend(_find_missing(directory, config, verifying=verifying))
    except OSError as error:
        message = f"{Path(error.filename).name} cannot be read: {error.strerror}"
        ending = "" if any(fault.is_problem for fault in found) else "; harbor aborts the job on it"
        found.append(Diagnostic("unreadable", f"{message}{ending}"))
    return directory, config, found


def _find_absent(directory: Path) -> Iterator[Diagnostic]:
    """What harbor checks before it reads any file."""
    if not is_there(directory / CONFIG):
        yield Diagnostic("missing-config", "no task.toml")
    if not is_there(directory / "environment"):
        yield Diagnostic("missing-environment", "no environment/")


def _find_missing(directory: Path, config: TaskConfig, *, verifying: bool) -> Iterator[Diagnostic]:
    """Files that a task with this config requires but does not have."""
    if config.steps:
        for step in config.steps:
            yield from _find_missing_of_step(directory, config, step, verifying=verifying)
        return
    if not is_there(directory / INSTRUCTION):
        yield Diagnostic("missing-instruction", "no instruction.md")
    if verifying and not config.find_verifier_environment():
        yield from _find_missing_test(config, [directory], "")


def _find_missing_of_step(
    directory: Path, config: TaskConfig, step: StepConfig, *, verifying: bool
) -> Iterator[Diagnostic]:
    where = directory / "steps" / step.name
    shown = f"steps/{step.name}"
    if Path(os.path.normpath(where)).parent != directory / "steps":
        # The trial's output directory has the same name, so it would be outside of the trial too.
        message = f"step {step.name!r} is not a directory directly below steps/"
        yield Diagnostic("step-outside", message)
        return
    if not is_there(where):
        yield Diagnostic("missing-step", f"no {shown}/, but [[steps]] lists it")
    elif not is_there(where / INSTRUCTION):
        yield Diagnostic("missing-instruction", f"no {shown}/instruction.md")
    if verifying and not config.find_verifier_environment(step):
        yield from _find_missing_test(config, [where, directory], f"{shown}/")


def _find_missing_test(config: TaskConfig, places: list[Path], prefix: str) -> Iterator[Diagnostic]:
    if any(_find_test(place, config) for place in places):
        return
    os_name = config.environment.os
    script = f"tests/test{os_name.script_suffix}"
    shared = f" and no {script}" if prefix else ""
    why = f"a task for {os_name} that is verified in the agent's environment needs it"
    yield Diagnostic("missing-test", f"no {prefix}{script}{shared}; {why}")


def _find_test(place: Path, config: TaskConfig) -> Path | None:
    return _find_script(place / "tests", "test", config)


def _find_script(directory: Path, stem: str, config: TaskConfig) -> Path | None:
    path = directory / f"{stem}{config.environment.os.script_suffix}"
    return path if is_there(path) else None
