"""Ensure that tests run with the image's own tools: a shell, grep, Python as it starts.

    before   find tools that the agent changed, and restore the image's
    after    check that no surviving process of the agent changed them during the tests

If a tool cannot be restored, or changed during the tests, the verification is void: tests that run
in the agent's shell report what the agent wants. The environment decides which files are tools.
"""

from collections.abc import Mapping, Sequence

from proctor.errors import DockerError, SandboxError, ToolsChangedError
from proctor.trial.environment import ChangedFile, Environment, ToolRestoring
from proctor.trial.finding import FindingCode
from proctor.trial.trial_run import TrialRun

# Reported but not undone: the task may ask for it.
_LEFT = frozenset({"built"})
# Limit on the files listed in a finding.
_MOST = 100


async def keep_tools(run: TrialRun, environment: Environment) -> None:
    """Add a finding for tools that the agent changed, and restore the image's.

    Raises:
        ToolsChangedError: they cannot be restored.
    """
    if not isinstance(environment, ToolRestoring) or not (
        changed := await environment.find_changed_tools()
    ):
        return
    _find(run, changed, f"{_count(changed)} when verification began")
    if run.account is not None:
        run.account.restored |= {file.path for file in changed}
    try:
        await environment.restore_tools(changed)
    except (SandboxError, DockerError, OSError) as error:
        raise ToolsChangedError(
            f"the tests were not run: {_name(changed[0].path)} is not the image's own, and the "
            f"image's could not be put back: {error}"
        ) from error


async def mark_tools(environment: Environment) -> Mapping[str, str]:
    """Marks of the image's tools, for `check_tools`."""
    return await environment.mark_tools() if isinstance(environment, ToolRestoring) else {}


async def check_tools(run: TrialRun, environment: Environment, before: Mapping[str, str]) -> None:
    """Check that no surviving process of the agent changed tools while the tests ran.

    Raises:
        ToolsChangedError: one did.
    """
    if not isinstance(environment, ToolRestoring):
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


async def find_late_tool_changes(run: TrialRun, environment: Environment) -> None:
    """Add a finding for tools that changed while the tests ran and no process of the agent lived.

    A program that the tests ran changed them, or the tests did: the reward counts.
    """
    if not isinstance(environment, ToolRestoring):
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
    """Quote an untrusted path for a message."""
    return path if path.isprintable() else repr(path)
