"""Fetch what the agent left, even after it was killed; give the verifier the host's files.

    agent/                      /logs/agent of the environment, next to files written on the host
    agent/….inside              the inside version of a file that differs from the host's
    agent/trajectory.jsonl      /workspace/trajectory.jsonl, if the agent wrote its trace only there
    agent/artifacts/            /workspace/artifacts, the media of such a trace

Failures are logged and never fail a trial.
"""

import asyncio
import filecmp
import json
import os
import shutil
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from proctor.files import write_small
from proctor.task.config import Artifact
from proctor.trial.environment import Environment
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.inside import download_without, empty_directories, is_mounted
from proctor.trial.model_use import fill_context
from proctor.trial.paths import INSIDE
from proctor.trial.recording import has_entries
from proctor.trial.trial_run import Target, TrialRun, checked_context
from proctor.trial.unchanged import take_fingerprint

# Merging files from inside an environment with those written on the host
#
# Files written on the host win: a differing file of the same name from inside is kept as
# `<name>.inside`, so that a process inside cannot forge the logs of an agent that runs outside.
# Links are moved as links and never followed.


SUFFIX = ".inside"


def merge_tree(source: str, target: str, below: str = "") -> list[str]:
    """Move everything in a directory into another; return the paths of files that differed."""
    differing: list[str] = []
    with os.scandir(source) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name = f"{below}{entry.name}"
        place = f"{target}/{entry.name}"
        if not os.path.lexists(place):
            os.rename(entry.path, place)
        elif entry.is_dir(follow_symlinks=False) and stat.S_ISDIR(os.lstat(place).st_mode):
            differing += merge_tree(entry.path, place, f"{name}/")
        elif not _is_same(entry.path, place):
            free, number = f"{place}{SUFFIX}", 1
            while os.path.lexists(free):
                number += 1
                free = f"{place}{SUFFIX}.{number}"
            os.rename(entry.path, free)
            differing.append(name)
    return differing


def _is_same(inside: str, outside: str) -> bool:
    one, other = os.lstat(inside), os.lstat(outside)
    if stat.S_ISLNK(one.st_mode) and stat.S_ISLNK(other.st_mode):
        return os.readlink(inside) == os.readlink(outside)
    plain = stat.S_ISREG(one.st_mode) and stat.S_ISREG(other.st_mode)
    return plain and filecmp.cmp(inside, outside, shallow=False)


_WORKSPACE_TRACE = "/workspace/trajectory.jsonl"
_WORKSPACE_MEDIA = "/workspace/artifacts"
# Limit on the files listed in a finding.
_MOST = 100


async def collect_agent_output(run: TrialRun, target: Target) -> None:
    """Fetch the agent's logs, and let the agent fill its context from them if it has not yet."""
    await _fetch_logs(run)
    # Agents written for harbor have none.
    take = getattr(run.agent, "take_findings", None)
    found = take() if callable(take) else ()
    for finding in found if isinstance(found, list) else ():
        if isinstance(finding, Finding):
            run.add_finding(finding.code, finding.message, **finding.detail)
    context = target.agent_result
    if context is None:
        return
    backfill = getattr(run.agent, "populate_context_post_run", None)
    if context.is_empty() and callable(backfill):
        backfill(context)
    fill_context(run, context)
    target.agent_result = checked_context(context, run.logger)


async def _fetch_logs(run: TrialRun) -> None:
    environment = run.environment
    if run.has_logs or environment is None or not run.is_started or run.is_stopped:
        return
    run.has_logs, run.fetched = True, None
    target = f"{run.place}/agent"
    try:
        if is_mounted(environment):
            # harbor's Docker environment changes the owner of mounted logs here.
            prepare = getattr(environment, "prepare_logs_for_host", None)
            if callable(prepare):
                await prepare()
        elif has_entries(target):
            await _fetch_beside(run, environment, target)
        else:
            await environment.download_dir(source_dir=str(INSIDE.agent_dir), target_dir=target)
            run.fetched = take_fingerprint([Path(target)])
    except Exception:  # an environment may raise anything; logged, as by harbor
        run.logger.exception(f"Failed to download logs to {target}")
    directory = run.paths.agent_dir
    try:
        if os.path.exists(f"{directory}/trajectory.jsonl"):
            return
        # As root: the agent's user may be the only one who can read it.
        if not await environment.is_file(_WORKSPACE_TRACE, user="root"):
            return
        await environment.download_file(
            source_path=_WORKSPACE_TRACE, target_path=directory / "trajectory.jsonl"
        )
        if await environment.is_dir(_WORKSPACE_MEDIA, user="root"):
            await environment.download_dir(
                source_dir=_WORKSPACE_MEDIA, target_dir=directory / "artifacts"
            )
    except Exception as error:  # noqa: BLE001 - an environment may raise anything; logs are a gift
        run.logger.warning("%s could not be fetched: %s", _WORKSPACE_TRACE, error)


async def _fetch_beside(run: TrialRun, environment: Environment, target: str) -> None:
    """Fetch the agent's logs and merge them with those written on the host."""
    fetched = f"{run.place}/.agent-inside"
    os.makedirs(fetched, exist_ok=True)
    names: list[str] = []
    try:
        await environment.download_dir(source_dir=str(INSIDE.agent_dir), target_dir=fetched)
    finally:
        # Also merge what an interrupted download fetched.
        if has_entries(fetched):
            names = await asyncio.to_thread(merge_tree, fetched, target)
        # What remains has identical copies in the target.
        await asyncio.to_thread(shutil.rmtree, fetched)
        if names:
            some = "a file" if len(names) == 1 else f"{len(names)} files"
            run.add_finding(
                FindingCode.LOGS_DIFFER,
                f"{some} of {INSIDE.agent_dir} differ from what the agent wrote on the host, which "
                f"stands; they are kept as *{SUFFIX}",
                files=names[:_MOST],
            )


def _is_all_inside(run: TrialRun) -> bool:
    """Whether the agent's logs on the host came from inside and have not changed since."""
    if run.fetched is None or hasattr(run.agent, "populate_context_post_run"):
        # An agent may write while it reads its logs, and two changes within one clock tick look
        # like none.
        return False
    return run.fetched == take_fingerprint([run.paths.agent_dir])


async def upload_agent_logs(run: TrialRun, environment: Environment) -> None:
    """Upload what the agent wrote on the host, for the verifier."""
    directory = run.paths.agent_dir
    if is_mounted(environment) or not has_entries(str(directory)) or _is_all_inside(run):
        return
    try:
        await environment.upload_dir(source_dir=directory, target_dir=str(INSIDE.agent_dir))
    except Exception:  # an environment may raise anything; logged, as by harbor
        run.logger.exception("Failed to upload agent logs back to environment")


type Asked = str | Artifact

_CONVENTION = str(INSIDE.artifacts_dir)


class Entry(msgspec.Struct, frozen=True):
    """One line of the manifest."""

    source: str
    """Path inside the environment."""
    destination: str
    """Path below the trial."""
    type: Literal["file", "directory"]
    status: Literal["ok", "failed", "empty"]


async def collect_artifacts(
    run: TrialRun, environment: Environment, directory: Path, further: Sequence[Asked] = ()
) -> None:
    """Fetch all requested artifacts into a directory, and write its manifest."""
    if not is_mounted(environment):
        directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for artifact in find_artifacts(run, further):
        entries.append(await _fetch(run, environment, artifact, directory))
    try:
        path = f"{directory}/manifest.json"
        text = render_manifest(tuple(entries))
        # The agent may have written into this directory, so links in it are not followed.
        try:
            write_small(path, text.encode(), is_new=True)
        except FileExistsError:
            os.unlink(path)
            write_small(path, text.encode(), is_new=True)
    except OSError as error:
        run.logger.debug("Failed to write artifacts manifest", exc_info=error)


@lru_cache(maxsize=64)
def render_manifest(entries: tuple[Entry, ...]) -> str:
    """Render manifest.json, without a final newline."""
    plain = [
        {
            "source": entry.source,
            "destination": entry.destination,
            "type": entry.type,
            "status": entry.status,
        }
        for entry in entries
    ]
    return json.dumps(plain, indent=2)


def find_artifacts(run: TrialRun, further: Sequence[Asked] = ()) -> Sequence[Artifact]:
    """All requested artifacts, in order."""
    asked = (*run.spec.task.config.artifacts, *run.spec.config.artifacts, *further)
    artifacts = [Artifact(source=each) if isinstance(each, str) else each for each in asked]
    if not any(_is_convention(artifact.source) for artifact in artifacts):
        artifacts.insert(0, Artifact(source=_CONVENTION, destination=_CONVENTION))
    return artifacts


async def _fetch(
    run: TrialRun, environment: Environment, artifact: Artifact, directory: Path
) -> Entry:
    source, target = artifact.source, place_of(artifact, directory)
    # The agent may have written into this directory if it is mounted, so links are not followed.
    if target is None or is_behind_link(directory, target):
        run.logger.warning(
            "artifact %r: its destination leads out of artifacts/; it is not fetched", source
        )
        return Entry(source, f"artifacts/{artifact.destination}", "file", "failed")
    shown = "artifacts"
    if target is not directory:
        shown += f"/{target.relative_to(directory).as_posix()}".removesuffix("/.")
    if _is_convention(source) and is_mounted(environment) and not artifact.exclude:
        is_there = has_entries(str(target))
        return Entry(source, shown, "directory", "ok" if is_there else "empty")
    try:
        is_dir = await environment.is_dir(source, user="root")
    except Exception:  # noqa: BLE001 - an environment may raise anything; then the name decides
        # harbor's guess.
        is_dir = not Path(source).suffix
    try:
        if not is_dir:
            target.parent.mkdir(parents=True, exist_ok=True)
            await environment.download_file(source_path=artifact.source, target_path=target)
        else:
            target.mkdir(parents=True, exist_ok=True)
            if artifact.exclude:
                await download_without(environment, artifact.source, target, artifact.exclude)
            else:
                await environment.download_dir(source_dir=artifact.source, target_dir=target)
    except Exception as error:  # an environment may raise anything; listed as failed
        run.logger.debug(f"Failed to download artifact '{source}' (best-effort)", exc_info=error)
        return Entry(source, shown, "directory" if is_dir else "file", "failed")
    return Entry(source, shown, "directory" if is_dir else "file", "ok")


async def upload_artifacts(
    run: TrialRun, environment: Environment, directory: Path, further: Sequence[Asked] = ()
) -> None:
    """Upload collected artifacts to another environment, at their original paths."""
    for artifact in find_artifacts(run, further):
        local = place_of(artifact, directory)
        if local is None or not local.exists():
            continue
        target = artifact.source
        if local.is_dir():
            await empty_directories(environment, [PurePosixPath(target)], open_to_all=True)
            await environment.upload_dir(source_dir=local, target_dir=target)
        else:
            await environment.upload_file(source_path=local, target_path=target)


def place_of(artifact: Artifact, directory: Path) -> Path | None:
    """Path of an artifact on the host; None if its destination leaves the directory.

    An absolute destination is taken relative to the directory.
    """
    if _is_convention(artifact.source):
        destination = artifact.destination or artifact.source
        if _is_convention(destination) or destination == ".":
            return directory
    destination = artifact.destination or PurePosixPath(artifact.source).name
    parts = [part for part in PurePosixPath(destination).parts if part not in ("", "/")]
    return None if ".." in parts else directory.joinpath(*parts)


def is_behind_link(directory: Path, path: Path) -> bool:
    """Whether a path below a directory is, or passes through, a link."""
    between = [path, *path.parents][: len(path.parts) - len(directory.parts)]
    return any(each.is_symlink() for each in between)


def _is_convention(path: str) -> bool:
    return path.rstrip("/") == _CONVENTION


def move_contents(source: Path, target: Path) -> None:
    """Move everything in a directory into another, overwriting, and leave it empty."""
    items = list(source.iterdir()) if source.is_dir() else []
    if not items:
        return
    target.mkdir(parents=True, exist_ok=True)
    for item in items:
        place = target / item.name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif place.exists() or place.is_symlink():
            place.unlink()
        shutil.move(str(item), place)
