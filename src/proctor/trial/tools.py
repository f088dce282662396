"""Seeing to it that tests have the image's own tools: a shell, grep, Python as it starts.

    before   what the agent changed of them is found, and the image's are put back
    after    nothing that the agent left running may have changed them under the tests

What cannot be put back, or changed meanwhile, voids the verification: tests that run in the agent's
own shell say what the agent wants. Which files these are is the environment's business.
"""

from collections.abc import Mapping, Sequence

from proctor.errors import DockerError, SandboxError, ToolsChangedError
from proctor.trial.environment import ChangedFile, Environment, can_keep
from proctor.trial.finding import FindingCode
from proctor.trial.trial_run import TrialRun

_LEFT = frozenset({"built"})
"""What is said and not undone: it may be what the task asks for."""
_MOST = 100
"""Files that a finding lists."""


async def keep_tools(run: TrialRun, environment: Environment) -> None:
    """Find what the agent changed of the image's tools, and give those of the image back.

    Raises:
        ToolsChangedError: that cannot be done.
    """
    if not can_keep(environment) or not (changed := await environment.find_changed_tools()):
        return
    _find(run, changed, f"{_count(changed)} when verification began")
    if run.account is not None:
        run.account.restored |= {file.path for file in changed}
    try:
        await environment.give_back_tools(changed)
    except (SandboxError, DockerError, OSError) as error:
        raise ToolsChangedError(
            f"the tests were not run: {_name(changed[0].path)} is not the image's own, and the "
            f"image's could not be put back: {error}"
        ) from error


async def mark_tools(environment: Environment) -> Mapping[str, str]:
    """How the image's tools are, for `check_tools`."""
    return await environment.mark_tools() if can_keep(environment) else {}


async def check_tools(run: TrialRun, environment: Environment, before: Mapping[str, str]) -> None:
    """See that nothing which the agent left running changed tools while the tests ran.

    Raises:
        ToolsChangedError: something did.
    """
    if not can_keep(environment):
        return
    found = await environment.find_changed_tools()
    changed = {file.path: file for file in found if file.how not in _LEFT}
    for path, mark in (await environment.mark_tools()).items():
        if before.get(path) != mark:
            changed.setdefault(path, ChangedFile(path, "changed", None))
    if changed:
        files = [changed[path] for path in sorted(changed)]
        _find(run, files, f"{_count(files)} while the verifier ran")
        raise ToolsChangedError(
            f"{_name(files[0].path)} was changed while the tests ran and processes of the agent "
            "were alive: the reward does not count"
        )


async def look_at_tools(run: TrialRun, environment: Environment) -> None:
    """Add a finding for tools that changed while the tests ran and nothing of the agent lived.

    It was a program that the tests ran, or the tests themselves: the reward stands.
    """
    if not can_keep(environment):
        return
    found = [file for file in await environment.find_changed_tools() if file.how not in _LEFT]
    if found:
        _find(
            run,
            found,
            f"{_count(found)} when the verifier had run",
            FindingCode.SYSTEM_CHANGED_LATE,
        )


def _find(
    run: TrialRun,
    changed: Sequence[ChangedFile],
    message: str,
    code: FindingCode = FindingCode.SYSTEM_CHANGED,
) -> None:
    files = [
        {"path": file.path, "how": file.how, "sha256": file.sha256} for file in changed[:_MOST]
    ]
    run.add_finding(code, message, files=files)


def _count(changed: Sequence[ChangedFile]) -> str:
    if len(changed) == 1:
        return "a tool that tests rest on was not the image's own"
    return f"{len(changed)} tools that tests rest on were not the image's own"


def _name(path: str) -> str:
    """A path of a stranger's, for a sentence."""
    return path if path.isprintable() else repr(path)
