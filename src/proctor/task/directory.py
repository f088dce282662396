"""One task directory: its config, its instructions, its scripts, and why harbor would not take it.

    load_task(path)      the task as a value, or a TaskError
    find_faults(path)    every reason for which harbor passes the directory over

Nothing here hashes, runs or writes anything.
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
    """One step of a task of several."""

    config: StepConfig
    """Its part of task.toml."""
    directory: Path
    """steps/NAME."""
    instruction: str
    """What the agent is told, without canary lines."""

    @property
    def name(self) -> str:
        """Its name, which is also that of its directory."""
        return self.config.name

    @property
    def workdir(self) -> Path:
        """Files for the working directory, and perhaps a setup.sh. It need not be there."""
        return self.directory / "workdir"


class Task(msgspec.Struct, frozen=True):
    """A task that harbor takes."""

    directory: Path
    """Where it is: absolute, without links."""
    config: TaskConfig
    """task.toml."""
    instruction: str
    """What the agent is told, without canary lines; empty in a task of several steps."""
    steps: tuple[Step, ...] = ()
    """The steps of a task of several, in order."""
    notes: tuple[Diagnostic, ...] = ()
    """What is worth knowing of its config and breaks nothing, such as unknown keys."""

    @property
    def name(self) -> str:
        """The name in [task], else that of the directory: `task_name` of a trial's result."""
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
        """The test script of the task or of one step: its own, else the shared one."""
        places = [step.directory, self.directory] if step else [self.directory]
        return next(filter(None, (_find_test(place, self.config) for place in places)), None)

    def find_solution_script(self, step: Step | None = None) -> Path | None:
        """The reference solution of the task or of one step."""
        place = step.directory if step else self.directory
        return _find_script(place / "solution", "solve", self.config)


def load_task(path: Path, *, verifying: bool = True) -> Task:
    """The task in a directory; with `verifying=False` it needs no test script.

    Raises:
        TaskError: harbor would not take it, or an instruction cannot be read.
    """
    directory, config, found = _examine(path, verifying=verifying)
    faults = [diagnostic for diagnostic in found if diagnostic.is_problem]
    if faults or config is None:
        reasons = "; ".join(map(str, faults))
        raise TaskError(f"{path}: not a task that harbor would take: {reasons}")
    steps = tuple(
        Step(step, where := directory / "steps" / step.name, _load_instruction(where))
        for step in config.steps or ()
    )
    instruction = "" if steps else _load_instruction(directory)
    return Task(directory, config, instruction, steps, tuple(found))


def find_faults(path: Path, *, verifying: bool = True) -> list[Diagnostic]:
    """Every reason for which harbor does not take a directory, in the order in which it looks.

    None if it takes it. It passes the directory over, unless the code of the first reason is in
    `ENDS_JOB`. With `--disable-verification` it asks for no test script: `verifying=False`.
    """
    _, _, found = _examine(path, verifying=verifying)
    return [diagnostic for diagnostic in found if diagnostic.is_problem]


def find_name(path: Path) -> str:
    """What harbor calls the task in a directory, also one that it would not take."""
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
        message = f"{Path(error.filename).name} cannot be looked at: {error.strerror}"
        ending = "" if any(fault.is_problem for fault in found) else "; harbor ends the job over it"
        found.append(Diagnostic("unreadable", f"{message}{ending}"))
    return directory, config, found


def _find_absent(directory: Path) -> Iterator[Diagnostic]:
    """What harbor looks for before it reads anything."""
    if not is_there(directory / CONFIG):
        yield Diagnostic("missing-config", "no task.toml")
    if not is_there(directory / "environment"):
        yield Diagnostic("missing-environment", "no environment/")


def _find_missing(directory: Path, config: TaskConfig, *, verifying: bool) -> Iterator[Diagnostic]:
    """What a task of this config lacks."""
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
        # The trial has a directory of the same name, which would lie somewhere else too.
        message = f"step {step.name!r} is not a directory directly below steps/"
        yield Diagnostic("step-outside", message)
        return
    if not is_there(where):
        yield Diagnostic("missing-step", f"no {shown}/, which [[steps]] names")
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
