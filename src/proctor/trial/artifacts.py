"""Collect artifacts: files to keep from an environment, with a manifest of what was requested.

/logs/artifacts comes first, unless it is requested by name; then the requests of the task, the job
and the step. Failures go into the manifest and never fail a trial.
"""

import json
import os
import shlex
import shutil
import uuid
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from proctor.files import write_small
from proctor.task.config import Artifact
from proctor.trial.environment import Environment
from proctor.trial.inside import empty_directories, is_mounted
from proctor.trial.paths import INSIDE
from proctor.trial.recording import has_entries
from proctor.trial.trial_run import TrialRun

type Asked = str | Artifact

_CONVENTION = str(INSIDE.artifacts_dir)
_ARCHIVE_SEC = 120


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
        _write_fresh(f"{directory}/manifest.json", render_manifest(tuple(entries)))
    except OSError as error:
        run.logger.debug("Failed to write artifacts manifest", exc_info=error)


def _write_fresh(path: str, text: str) -> None:
    # The agent may have written into this directory, so links in it are not followed.
    try:
        write_small(path, text.encode(), is_new=True)
    except FileExistsError:
        os.unlink(path)
        write_small(path, text.encode(), is_new=True)


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
        await _download(environment, artifact, target, is_dir=is_dir)
    except Exception as error:  # an environment may raise anything; listed as failed
        run.logger.debug(f"Failed to download artifact '{source}' (best-effort)", exc_info=error)
        return Entry(source, shown, "directory" if is_dir else "file", "failed")
    return Entry(source, shown, "directory" if is_dir else "file", "ok")


async def _download(
    environment: Environment, artifact: Artifact, target: Path, *, is_dir: bool
) -> None:
    if not is_dir:
        target.parent.mkdir(parents=True, exist_ok=True)
        await environment.download_file(source_path=artifact.source, target_path=target)
        return
    target.mkdir(parents=True, exist_ok=True)
    if artifact.exclude:
        await _download_without(environment, artifact, target)
    else:
        await environment.download_dir(source_dir=artifact.source, target_dir=target)


async def _download_without(environment: Environment, artifact: Artifact, target: Path) -> None:
    """Fetch a directory without its excluded files, by copying it inside first.

    The intermediate archive is unpacked inside, not on the host: the agent may have replaced the
    tool that makes it, and unpacking a hostile archive on the host would be dangerous.
    """
    # An unguessable name, so that no process of the agent can prepare the directory.
    place = f"/tmp/.hb-transfer-{uuid.uuid4()}"  # noqa: S108 - inside the environment
    excluded = " ".join(f"--exclude={shlex.quote(pattern)}" for pattern in artifact.exclude)
    archive, source = f"{place}/archive.tar", shlex.quote(artifact.source)
    command = (
        f"mkdir -p -m 700 {place}/copy && tar cf {archive} {excluded} -C {source} . "
        f"&& tar xf {archive} -C {place}/copy"
    )
    try:
        made = await environment.exec(command=command, timeout_sec=_ARCHIVE_SEC, user="root")
        if made.return_code != 0:
            output = made.stderr or made.stdout or "no output"
            raise RuntimeError(
                f"Failed to create transfer archive for {artifact.source!r} with code "
                f"{made.return_code}: {output}"
            )
        await environment.download_dir(source_dir=f"{place}/copy", target_dir=target)
    finally:
        removing = f"rm -rf {place}"
        await environment.exec(command=removing, timeout_sec=_ARCHIVE_SEC, user="root")


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
