"""Check an environment before and after verification for signs that a score was not earned.

Results are findings and never change a score. In an environment that cannot list its own files, a
script runs inside. An agent with root access may have replaced the tools the script uses, which can
at worst hide a finding.
"""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import batched
from pathlib import Path

import msgspec

from proctor.errors import DockerError, SandboxError, TaskError, ToolsChangedError
from proctor.task.directory import Step
from proctor.task.manifest import hash_files
from proctor.trial.environment import (
    ChangedFile,
    Environment,
    Listing,
    Process,
    SeenFile,
    ToolRestoring,
    Watched,
)
from proctor.trial.finding import FindingCode
from proctor.trial.paths import INSIDE
from proctor.trial.trial_run import TrialRun

# Limit on the files or processes listed in a finding.
_MOST = 100
# Tests up to this many bytes are hashed on the event loop; a thread would take longer.
_SMALL = 1 << 20
_LOOK_SEC = 30
# Files per command: an argument longer than 128 KiB is refused by the kernel (MAX_ARG_STRLEN).
_BATCH = 400
_LARGEST = 1 << 20

# File names are untrusted, so each line ends in NUL. Only small regular files are read.
_LOOK = """shopt -s globstar dotglob nullglob 2>/dev/null
n=0
for f in {globs}; do
  [ -e "$f" ] || [ -L "$f" ] || continue
  [ -d "$f" ] && [ ! -L "$f" ] && continue
  n=$((n+1)); [ $n -gt {most} ] && break
  size=; sum=
  if [ -f "$f" ] && [ ! -L "$f" ]; then
    size=$(wc -c <"$f")
    [ "$size" -le {largest} ] && sum=$(sha256sum <"$f")
  fi
  printf '%s\\t%s\\t%s\\0' "${{sum%% *}}" "$size" "$f"
done"""

_LOOKED = "looked"
_HASH = """command -v sha256sum >/dev/null || exit
cd {tests} && sha256sum -- {names} 2>/dev/null
echo looked"""


async def check_before_tests(run: TrialRun, environment: Environment) -> bool:
    """Add findings for planted files and surviving processes; return whether files were planted."""
    verifier, tests = str(INSIDE.verifier_dir), str(INSIDE.tests_dir)
    seen = await _list_files(run, environment, (verifier, tests))
    rewards = [file for file in seen if file.path.startswith(f"{verifier}/")]
    planted = [file for file in seen if file.path.startswith(f"{tests}/")]
    if rewards:
        run.add_finding(
            FindingCode.REWARD_PLANTED,
            f"{_count(rewards)} existed in {verifier} before the verifier started",
            files=_describe(rewards),
        )
    if planted:
        run.add_finding(
            FindingCode.TESTS_PLANTED,
            f"{_count(planted)} existed in {tests} before the tests were copied there",
            files=_describe(planted),
        )
    return bool(seen)


async def find_running(run: TrialRun, watched: Watched) -> Sequence[Process]:
    """Add a finding for processes of the agent that are still alive; return all of them."""
    processes = await watched.list_processes()
    if processes:
        run.add_finding(
            FindingCode.AGENT_STILL_BUSY,
            f"{len(processes)} of the agent's processes were alive when verification began",
            processes=[msgspec.structs.asdict(each) for each in processes[:_MOST]],
        )
        changes = run.account.changes if run.account else ()
        made = {each.path for each in changes if each.how != "deleted"}
        own = [
            each
            for each in processes
            if each.script in made or (each.executable or "").removesuffix(" (deleted)") in made
        ]
        if own:
            run.add_finding(
                FindingCode.AGENT_PROGRAM_RUNNING,
                f"{len(own)} of these processes execute what the agent made",
                processes=[msgspec.structs.asdict(each) for each in own[:_MOST]],
            )
    return processes


def _count(files: Sequence[SeenFile]) -> str:
    if len(files) == 1:
        return "a file"
    return f"{len(files)} files or more" if len(files) >= _MOST else f"{len(files)} files"


def _describe(files: Sequence[SeenFile]) -> list[dict[str, object]]:
    return [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files]


async def _list_files(
    run: TrialRun, environment: Environment, directories: tuple[str, ...]
) -> Sequence[SeenFile]:
    if isinstance(environment, Listing):
        return await environment.list_files(directories, _MOST)
    try:
        command = _looking_at(directories)
        output = await environment.exec(command=command, timeout_sec=_LOOK_SEC, user="root")
    except RuntimeError as error:
        run.logger.warning("the files in %s could not be listed: %s", directories, error)
        return ()
    return [
        _parse_line(line) for line in (output.stdout or "").split("\0") if line.count("\t") >= 2
    ]


@lru_cache(maxsize=8)
def _looking_at(directories: tuple[str, ...]) -> str:
    globs = " ".join(f"{shlex.quote(directory)}/**" for directory in directories)
    return _LOOK.format(globs=globs, most=_MOST, largest=_LARGEST)


def _parse_line(line: str) -> SeenFile:
    digest, size, path = line.split("\t", 2)
    known = size.strip()
    return SeenFile(path.lstrip("\n"), int(known) if known.isdigit() else None, digest or None)


async def check_after_tests(
    run: TrialRun, room: Environment, sources: Sequence[Path], step: Step | None
) -> None:
    """Add findings for tests that changed on the host, or inside after the upload."""
    if not sources:
        return
    prefixes = ["tests/", f"steps/{step.name}/tests/"] if step else ["tests/"]
    planned = {
        file.path.removeprefix(prefix): file.sha256
        for prefix in prefixes
        for file in run.spec.digests.files
        if file.path.startswith(prefix)
    }
    if run.spec.digests.size < _SMALL:
        changed = _find_changed_on_host(sources, planned)
    else:
        # In a thread: the tests may be large.
        changed = await asyncio.to_thread(_find_changed_on_host, sources, planned)
    if changed:
        run.add_finding(
            FindingCode.TESTS_CHANGED,
            "the task's tests directory on the host is not what it was when the trial was planned",
            files=changed[:_MOST],
        )
        return
    # New files, such as caches, are normal.
    altered: list[str] = []
    try:
        # Output is parsed by lines, and some versions of sha256sum escape a backslash.
        plain = [path for path in sorted(planned) if "\n" not in path and "\\" not in path]
        for batch in batched(plain, _BATCH):
            now = await _hash_inside(room, batch, planned)
            if now is not None:
                altered += [path for path in batch if now.get(path) != planned[path]]
    except Exception as error:  # noqa: BLE001 - an environment may raise anything, and scores stand
        run.logger.warning("the tests could not be checked afterwards: %s", error)
    if altered:
        some = "one" if len(altered) == 1 else f"{len(altered)}"
        run.add_finding(
            FindingCode.TESTS_CHANGED,
            f"{some} of the uploaded tests changed or vanished while the verifier ran",
            files=altered[:_MOST],
        )


def _find_changed_on_host(sources: Sequence[Path], planned: Mapping[str, str]) -> list[str]:
    try:
        now = {file.path: file.sha256 for source in sources for file in hash_files(source)}
    except TaskError as error:
        return [str(error)]
    return sorted(
        path for path in now.keys() | planned.keys() if now.get(path) != planned.get(path)
    )


async def _hash_inside(
    room: Environment, paths: Sequence[str], planned: Mapping[str, str]
) -> Mapping[str, str | None] | None:
    """Digests of uploaded files that are still regular files; None if they cannot be read."""
    tests = str(INSIDE.tests_dir)
    if isinstance(room, Listing):
        seen = await room.list_files([f"{tests}/{path}" for path in paths], len(paths))
        found = {file.path.removeprefix(f"{tests}/"): file for file in seen}
        # A file too large to be read has an unknown digest, which is not a finding.
        return {
            path: planned.get(path) if file.sha256 is None and file.size else file.sha256
            for path, file in found.items()
        }
    command = _HASH.format(tests=tests, names=" ".join(map(shlex.quote, paths)))
    output = await room.exec(command=command, timeout_sec=_LOOK_SEC, user="root")
    lines = (output.stdout or "").split("\n")
    # Without this line the command did not finish: missing digests then prove nothing.
    if _LOOKED not in lines:
        return None
    listed = (line.partition("  ") for line in lines)
    return {path: digest for digest, _, path in listed}


# Reported but not undone: the task may ask for it.
_LEFT = frozenset({"built"})


async def keep_tools(run: TrialRun, environment: Environment) -> None:
    """Add a finding for tools that the agent changed, and restore the image's.

    Raises:
        ToolsChangedError: they cannot be restored.
    """
    if not isinstance(environment, ToolRestoring) or not (
        changed := await environment.find_changed_tools()
    ):
        return
    _find_tools(run, changed, f"{_count_tools(changed)} when verification began")
    if run.account is not None:
        run.account.restored |= {file.path for file in changed}
    try:
        await environment.restore_tools(changed)
    except (SandboxError, DockerError, OSError) as error:
        raise ToolsChangedError(
            f"the tests were not run: {_quote(changed[0].path)} is not the image's own, and the "
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
        _find_tools(run, files, f"{_count_tools(files)} while the verifier ran")
        raise ToolsChangedError(
            f"{_quote(files[0].path)} was changed while the tests ran and processes of the agent "
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
        _find_tools(
            run,
            found,
            f"{_count_tools(found)} when the verifier had run",
            FindingCode.SYSTEM_CHANGED_LATE,
        )


def _find_tools(
    run: TrialRun,
    changed: Sequence[ChangedFile],
    message: str,
    code: FindingCode = FindingCode.SYSTEM_CHANGED,
) -> None:
    files = [
        {"path": file.path, "how": file.how, "sha256": file.sha256} for file in changed[:_MOST]
    ]
    run.add_finding(code, message, files=files)


def _count_tools(changed: Sequence[ChangedFile]) -> str:
    if len(changed) == 1:
        return "a tool that tests rest on was not the image's own"
    return f"{len(changed)} tools that tests rest on were not the image's own"


def _quote(path: str) -> str:
    """Quote an untrusted path for a message."""
    return path if path.isprintable() else repr(path)
