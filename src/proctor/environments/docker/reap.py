"""Finds containers that killed runs left, by their labels, and removes them after salvage.

Images with frozen files of a run are removed with them; images of tasks stay. Live runs, and those
of other users or machines, are never touched. Blocks: call it in a thread.
"""

import io
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from proctor.environments.docker.containers import ATTEMPT, OWNER, RUN, TRIAL, owner
from proctor.environments.docker.copies import TarArchive
from proctor.environments.docker.program import call_docker, find_docker
from proctor.environments.sandbox.archive import BrokenArchiveError, Limits
from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.locks import locked, make_private
from proctor.environments.sandbox.reap import Reaped
from proctor.environments.sandbox.salvage import PLACES, salvage
from proctor.environments.sandbox.scratch import (
    NOTE,
    SessionNote,
    cache_directory,
    find_attempt,
    open_run,
    parse_run_id,
    scratch_roots,
)
from proctor.environments.sandbox.scratch import make_private as make_scratch
from proctor.environments.sandbox.unpack import unpack
from proctor.errors import DockerError, EngineError, ImageError, SandboxError
from proctor.sentence import reason_of

_PATIENCE_SEC = 30.0
# The same limits as for salvage from a sandbox.
_LIMITS = Limits(1 << 30, 20_000)
_UPPER = "upper"

type _Words = tuple[str, ...]
# Commands that list and describe objects of a kind.
_CONTAINERS: tuple[_Words, _Words] = (("ps",), ("inspect",))
_IMAGES: tuple[_Words, _Words] = (("image", "ls"), ("image", "inspect"))


@dataclass(frozen=True, slots=True)
class Left:
    """A container of a dead run."""

    id: str
    name: str
    run: str
    trial: str | None
    """Directory of its trial; None for a room."""
    attempt: tuple[int, int] | None


def reap_containers(done: Reaped, *, dry_run: bool = False) -> None:
    """Remove what dead runs left in the engine, if there is one; with `dry_run`, only list it."""
    try:
        find_docker()
        if not any(_find_dead(*kind) for kind in (_CONTAINERS, _IMAGES)):
            return
        with locked(make_private(cache_directory() / "docker") / "reap.lock"):
            for left in list(_find_left()):
                _reap(left, done, dry_run=dry_run)
            _reap_images(done, dry_run=dry_run)
    except EngineError:
        # Without an engine nothing can be found; a later run with one will.
        return
    except (DockerError, ImageError, SandboxError) as error:
        done.kept.append(str(error))


def _find_left() -> Iterator[Left]:
    for run, facts in _find_dead(*_CONTAINERS):
        labels = facts["Config"]["Labels"]
        device, _, inode = labels.get(ATTEMPT, "").partition(":")
        yield Left(
            id=facts["Id"],
            name=facts["Name"].lstrip("/"),
            run=run,
            trial=labels.get(TRIAL) or None,
            attempt=(int(device), int(inode)) if device.isdigit() and inode.isdigit() else None,
        )


def _find_dead(listing: _Words, describing: _Words) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects of one kind that dead runs left: the run, and docker's description."""
    listed = call_docker(
        *(*listing, "--all", "--no-trunc", "--quiet", "--filter", f"label={OWNER}={owner()}"),
        patience_sec=_PATIENCE_SEC,
    )
    identities = dict.fromkeys(listed.out.split())
    if not identities:
        return []
    # Unchecked: it fails if one was removed meanwhile, but still describes the others.
    described = call_docker(*describing, *identities, is_checked=False, patience_sec=_PATIENCE_SEC)
    found = []
    for facts in json.loads(described.out or "[]"):
        run = parse_run_id((facts["Config"]["Labels"] or {}).get(RUN, ""))
        if run is not None and not run.is_living:
            found.append((str(run), facts))
    return found


def _reap_images(done: Reaped, *, dry_run: bool) -> None:
    for run, facts in _find_dead(*_IMAGES):
        if run not in done.runs:
            done.runs.append(run)
        if not dry_run:
            removed = call_docker("image", "rm", facts["Id"], is_checked=False)
            if removed.code != 0 and "no such image" not in removed.err.lower():
                done.kept.append(f"image {facts['Id']}: cannot be removed: {removed.err.strip()}")
                continue
        done.images.append(facts["Id"])


def bring_in(container: str, trial: Path) -> None:
    """Copy the evidence in a container to its trial, then remove it.

    Raises:
        DockerError: not all of it could be copied; the container is stopped, but kept.
    """
    done = Reaped()
    _reap(
        Left(container, container, "", str(trial.absolute()), find_attempt(trial)),
        done,
        dry_run=False,
    )
    if not done.containers:
        raise DockerError(
            f"{container}: contains files of the trial that could not be copied "
            f"({'; '.join(done.kept[:1])}); run `proctor clean` to try again"
        )


def _reap(left: Left, done: Reaped, *, dry_run: bool) -> None:
    if left.run not in done.runs:
        done.runs.append(left.run)
    if dry_run:
        done.containers.append(left.name)
        return
    # Nothing may run while its files are copied. A paused container cannot be killed.
    call_docker("unpause", left.id, is_checked=False)
    call_docker("kill", left.id, is_checked=False)
    if left.trial is not None and not _bring_in(left, done):
        done.kept.append(
            f"container {left.name}: contains files that could not be copied; delete it yourself: "
            f"docker rm {left.name}"
        )
        return
    removed = call_docker("rm", "--force", "--volumes", left.id, is_checked=False)
    if removed.code != 0 and "no such container" not in removed.err.lower():
        done.kept.append(f"container {left.name}: cannot be removed: {removed.err.strip()}")
        return
    done.containers.append(left.name)


def _bring_in(left: Left, done: Reaped) -> bool:
    """Copy what a killed trial left to its directory; return whether to remove the container."""
    # In the scratch of this run, where it is salvaged if this process is killed too.
    make_scratch(scratch_roots()[0])
    directory = open_run(scratch_roots()[0]).open_session(left.name).directory
    try:
        refused = [line for place in PLACES for line in _take(left.id, place, directory / _UPPER)]
        note = SessionNote(left.name, str(left.trial), {"/": _UPPER}, left.attempt)
        (directory / NOTE).write_bytes(msgspec.json.encode(note))
        saved = salvage(directory)
    except OSError as error:
        done.kept.append(f"container {left.name}: {reason_of(error)}")
        return False
    finally:
        delete_tree(directory)
    done.salvaged += saved.copied
    done.kept += [*refused, *saved.refused]
    return saved.is_safe_to_delete


def _take(container: str, place: str, top: Path) -> list[str]:
    """Copy a path of a container below a directory; return the files that were refused."""
    target = Path(f"{top}{place}")
    with subprocess.Popen(
        [find_docker(), "cp", f"{container}:{place}", "-"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as copying:
        stream = cast("io.BufferedReader", copying.stdout)
        if not stream.peek(1):
            return []
        target.parent.mkdir(parents=True, exist_ok=True)
        archive = io.BufferedReader(TarArchive(cast("BinaryIO", stream), _LIMITS))
        try:
            found = unpack(cast("BinaryIO", archive), target, target.name, _LIMITS)
        except BrokenArchiveError as error:
            return [f"{place}: {error}"]
        finally:
            copying.kill()
    return [f"{place}: {line}" for line in found]
