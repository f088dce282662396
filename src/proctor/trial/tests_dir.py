"""Which tests verify a task or a step, and where their script is once they are uploaded."""

import os
from pathlib import Path, PurePosixPath

import msgspec

from proctor.task.directory import Step, Task
from proctor.trial.paths import INSIDE
from proctor.trial.plan import Plan


class Tests(msgspec.Struct, frozen=True):
    """The tests of one verification."""

    sources: tuple[Path, ...]
    """Directories of the host that go to /tests, a later one over an earlier."""
    script: PurePosixPath
    """The test script, inside."""
    places: tuple[str, ...]
    """Where the test script may be on the host."""


def find_tests(plan: Plan, step: Step | None) -> Tests:
    """The tests of a task, or those that it shares with a step and the step's own.

    Raises:
        FileNotFoundError: there is no test script, in harbor's words.
    """
    known = recall_tests(plan, step)
    if known is not None and any(os.path.exists(path) for path in known.places):
        return known
    return _look_for_tests(plan.task, step)


def recall_tests(plan: Plan, step: Step | None) -> Tests | None:
    """The tests as they were when somebody first looked; None where there were none."""
    name = step.name if step else None
    try:
        return plan.shared.once(("tests", name), lambda: _look_for_tests(plan.task, step))
    except FileNotFoundError:
        return None


def _look_for_tests(task: Task, step: Step | None) -> Tests:
    os_name = task.config.environment.os
    script = INSIDE.tests_dir / f"test{os_name.script_suffix}"
    shared = task.directory / "tests"
    if step is None:
        if task.find_test_script() is None:
            raise FileNotFoundError(f"No test script found in: {shared} (target OS: {os_name})")
        return Tests((shared,), script, (str(shared / script.name),))
    own = step.directory / "tests"
    if task.find_test_script(step) is None:
        raise FileNotFoundError(
            f"No {os_name} test script found for step '{step.name}': expected "
            f"{own / script.name} or {shared / script.name}"
        )
    sources = tuple(each for each in (shared, own) if each.exists())
    return Tests(sources, script, tuple(str(each / script.name) for each in sources))
