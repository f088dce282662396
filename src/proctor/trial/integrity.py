"""What lies in an environment before and after verification, as far as a score rests on it.

What is found becomes findings, never another score. Where an environment cannot list its files
itself, a script is run inside: an agent that was root there may have replaced the tools that it
uses, which can hide a finding and nothing else.
"""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import batched
from pathlib import Path

import msgspec

from proctor.errors import TaskError
from proctor.task.directory import Step
from proctor.task.manifest import hash_files
from proctor.trial.environment import Environment, Process, SeenFile, Watched, can_list
from proctor.trial.finding import FindingCode
from proctor.trial.paths import INSIDE
from proctor.trial.spec import TrialSpec
from proctor.trial.trial_run import TrialRun

_MOST = 100
"""Files or processes that a finding lists; more are as good as these."""
_SMALL = 1 << 20
"""Bytes of a task whose tests are hashed at once; a thread would take longer."""
_LOOK_SEC = 30
_BATCH = 400
"""Files that one command is asked about: its text must stay under 128 KiB."""
_LARGEST = 1 << 20

# Names come from a stranger: each line ends in NUL. Only plain files that are small are read.
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


async def look_before(run: TrialRun, environment: Environment) -> bool:
    """Find what was planted where the verifier works, and who is still at work; was anything?"""
    verifier, tests = str(INSIDE.verifier_dir), str(INSIDE.tests_dir)
    seen = await _list_files(run, environment, (verifier, tests))
    rewards = [file for file in seen if file.path.startswith(f"{verifier}/")]
    planted = [file for file in seen if file.path.startswith(f"{tests}/")]
    if rewards:
        run.add_finding(
            FindingCode.REWARD_PLANTED,
            f"{_count(rewards)} lay in {verifier} before the verifier began",
            files=_describe(rewards),
        )
    if planted:
        run.add_finding(
            FindingCode.TESTS_PLANTED,
            f"{_count(planted)} lay in {tests} before the tests were put there",
            files=_describe(planted),
        )
    return bool(seen)


async def look_for_busy(run: TrialRun, watched: Watched) -> Sequence[Process]:
    """Find processes of the agent that are still alive; all of them."""
    processes = await watched.list_processes()
    if processes:
        run.add_finding(
            FindingCode.AGENT_STILL_BUSY,
            f"{len(processes)} of the agent's processes were alive when verification began",
            processes=[msgspec.structs.asdict(each) for each in processes[:_MOST]],
        )
        _find_own_programs(run, processes)
    return processes


def _find_own_programs(run: TrialRun, processes: Sequence[Process]) -> None:
    """Find processes that execute what the agent made."""
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


def _count(files: Sequence[SeenFile]) -> str:
    if len(files) == 1:
        return "a file"
    return f"{len(files)} files or more" if len(files) >= _MOST else f"{len(files)} files"


def _describe(files: Sequence[SeenFile]) -> list[dict[str, object]]:
    return [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files]


async def _list_files(
    run: TrialRun, environment: Environment, directories: tuple[str, ...]
) -> Sequence[SeenFile]:
    if can_list(environment):
        return await environment.list_files(directories, _MOST)
    try:
        command = _looking_at(directories)
        told = await environment.exec(command=command, timeout_sec=_LOOK_SEC, user="root")
    except RuntimeError as error:
        run.logger.warning("what lies in %s could not be listed: %s", directories, error)
        return ()
    return [_parse_line(line) for line in (told.stdout or "").split("\0") if line.count("\t") >= 2]


@lru_cache(maxsize=8)
def _looking_at(directories: tuple[str, ...]) -> str:
    globs = " ".join(f"{shlex.quote(directory)}/**" for directory in directories)
    return _LOOK.format(globs=globs, most=_MOST, largest=_LARGEST)


def _parse_line(line: str) -> SeenFile:
    digest, size, path = line.split("\t", 2)
    known = size.strip()
    return SeenFile(path.lstrip("\n"), int(known) if known.isdigit() else None, digest or None)


def find_uploaded(spec: TrialSpec, step: Step | None) -> dict[str, str]:
    """The digest of every plain file of the tests by its path below /tests, as it was planned."""
    prefixes = ["tests/", f"steps/{step.name}/tests/"] if step else ["tests/"]
    return {
        file.path.removeprefix(prefix): file.sha256
        for prefix in prefixes
        for file in spec.digests.files
        if file.path.startswith(prefix)
    }


async def look_after(
    run: TrialRun, room: Environment, sources: Sequence[Path], step: Step | None
) -> None:
    """Find whether the tests changed: the host's files, or those that were uploaded."""
    if not sources:
        return
    planned = find_uploaded(run.spec, step)
    if run.spec.digests.size < _SMALL:
        changed = _find_changed_on_host(sources, planned)
    else:
        # Beside the event loop: they may be large.
        changed = await asyncio.to_thread(_find_changed_on_host, sources, planned)
    if changed:
        run.add_finding(
            FindingCode.TESTS_CHANGED,
            "the task's tests directory on the host is not what it was when the trial was planned",
            files=changed[:_MOST],
        )
        return
    altered = await _find_altered(run, room, planned)
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


async def _find_altered(run: TrialRun, room: Environment, planned: Mapping[str, str]) -> list[str]:
    """The uploaded files that are not as they were; new ones, such as caches, are ordinary."""
    altered: list[str] = []
    try:
        # Lines are told apart by their ends, and some tools escape a backslash.
        plain = [path for path in sorted(planned) if "\n" not in path and "\\" not in path]
        for batch in batched(plain, _BATCH):
            now = await _hash_inside(room, batch, planned)
            if now is not None:
                altered += [path for path in batch if now.get(path) != planned[path]]
    except Exception as error:  # noqa: BLE001 - an environment may raise anything, and scores stand
        run.logger.warning("the tests could not be looked at afterwards: %s", error)
    return altered


async def _hash_inside(
    room: Environment, paths: Sequence[str], planned: Mapping[str, str]
) -> Mapping[str, str | None] | None:
    """The digests of uploaded files that are still plain files; None where nobody can look."""
    tests = str(INSIDE.tests_dir)
    if can_list(room):
        seen = await room.list_files([f"{tests}/{path}" for path in paths], len(paths))
        found = {file.path.removeprefix(f"{tests}/"): file for file in seen}
        # Nobody knows of one that is too large to be read; that is no finding.
        return {
            path: planned.get(path) if file.sha256 is None and file.size else file.sha256
            for path, file in found.items()
        }
    command = _HASH.format(tests=tests, names=" ".join(map(shlex.quote, paths)))
    told = await room.exec(command=command, timeout_sec=_LOOK_SEC, user="root")
    lines = (told.stdout or "").split("\n")
    if _LOOKED not in lines:
        return None
    told_of = (line.partition("  ") for line in lines)
    return {path: digest for digest, _, path in told_of}
