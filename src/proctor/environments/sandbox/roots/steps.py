"""Runs the steps of a Dockerfile in a sandbox."""

import asyncio
import os
import posixpath
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import batched
from pathlib import Path

from proctor.environments.sandbox.blueprint import Blueprint, Command, Network, Part
from proctor.environments.sandbox.box import Box, FoundSource, Placing
from proctor.environments.sandbox.output import Hearing
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.roots.context import Selection, split_pattern, stage
from proctor.environments.sandbox.roots.image_tar import DAMAGE, Budget, opened
from proctor.environments.sandbox.roots.instructions import Copy, MakeDirectory, Run, Step
from proctor.environments.sandbox.roots.layers import Parts, discard
from proctor.environments.sandbox.scratch import Session
from proctor.environments.sandbox.subordinate import find_subordinate_ids
from proctor.errors import ImageError, SandboxError
from proctor.sentence import reason_of, without_escapes

_LAST_LINES = 400
_LAST_CHARACTERS = 40_000
# Paths per chown, to stay below the kernel's limit for arguments.
_PATHS_AT_ONCE = 500
_DENIED = "Permission denied"
_HINT = (
    "an unprivileged user's sandbox cannot change the host's files, such as those below /usr; "
    "build on an imported image, or run as root"
)
_PIECE = 1 << 18
_LONGEST_LOG = 64 << 20
_SCRIPT = "/tmp/.proctor-run"  # noqa: S108 - inside the sandbox


type Spawn = Callable[[Blueprint], Awaitable[Box]]


@dataclass(frozen=True, slots=True)
class Order:
    """A step with the files that it copies."""

    step: Step
    selection: Selection | None = None
    """Files of the task's environment directory."""
    origin: Parts | None = None
    """The root file system that COPY --from copies from."""
    origin_identity: str | None = None
    """What the files of `origin` are: the pin of an image, or the id of a layer."""


async def run_in_thread[T](act: Callable[[], T]) -> T:
    """Run a slow function in a thread; a cancellation waits until it is done.

    Otherwise its files would be deleted while it still writes them.
    """
    task = asyncio.ensure_future(asyncio.to_thread(act))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def cut_output(output: bytes) -> str:
    """Return the last lines of an output, without escape sequences."""
    text = without_escapes(output.decode("utf-8", errors="replace"))[-_LAST_CHARACTERS:]
    return "".join(text.splitlines(keepends=True)[-_LAST_LINES:])


class BuildLog:
    """What the instructions of a layer print. Nothing is written beyond its limit."""

    def __init__(self, path: Path) -> None:
        """Replace the log of an earlier build."""
        self.path = path
        self._room = _LONGEST_LOG
        try:
            path.write_bytes(b"")
        except OSError as error:
            raise ImageError(f"{path}: cannot be written: {reason_of(error)}") from error

    def write(self, data: bytes) -> None:
        """Append bytes; a disk that is full is left for the build itself to report."""
        with suppress(OSError), self.path.open("ab") as file:
            file.write(data[: self._room])
        self._room -= min(len(data), self._room)


class StepRunner:
    """Runs the steps of a Dockerfile in a sandbox."""

    def __init__(
        self, box: Box, where: str, staging: Path, spawn: Spawn, log: BuildLog, hints: Sequence[str]
    ) -> None:
        """Prepare to run steps; `hints` are sentences to add to the output of one that fails."""
        self._box = box
        self._where = where
        self._staging = staging
        self._spawn = spawn
        self._log = log
        self._hints = hints
        self._n_staged = 0

    async def do(self, order: Order) -> None:
        """Run one step."""
        self._log.write(f"{self._where}:{order.step.line}: {order.step.text}\n".encode())
        match order.step:
            case Run() as run:
                await self._run(run)
            case MakeDirectory() as directory:
                is_new = not await self._is_directory(directory.path)
                if is_new:
                    empty = self._staging / "empty"
                    empty.mkdir(exist_ok=True)
                    await self._box.put(empty, directory.path)
                if is_new and directory.user not in ("root", "0"):
                    await self._chown(directory, directory.user, [directory.path])
            case Copy() as copy if order.origin is not None:
                await self._copy_from(copy, order.origin)
            case Copy() as copy if order.selection is not None:
                await self._copy(copy, order.selection)
                for archive in order.selection.archives:
                    placing = Placing(copy.target, copy.chown, copy.chmod, owns_target=True)
                    try:
                        await unpack_archive(self._box, archive, placing)
                    except (SandboxError, ImageError, OSError, *DAMAGE) as error:
                        reason = reason_of(error) if isinstance(error, OSError) else str(error)
                        raise self._uncopied(copy, f"{archive.name}: {reason}") from error

    async def _run(self, run: Run) -> None:
        argv = run.argv
        if run.script is not None:
            path = self._staging / "script"
            path.write_text(run.script, encoding="utf-8")
            path.chmod(0o755)
            await self._box.put(path, _SCRIPT)
            argv = (_SCRIPT,)
        command = Command(argv, run.cwd, dict(run.env), run.user)
        done = await self._box.run(command, hearing=Hearing(self._log.write))
        if run.script is not None:
            await self._box.run(Command(("rm", "-f", _SCRIPT), "/"))
        if done.return_code != 0:
            raise self._failure(run, done.return_code, done.output)

    def _failure(self, step: Step, code: int, output: bytes) -> RuntimeError:
        last = cut_output(output)
        denied = [_HINT] if _DENIED in last and not is_all_powerful() else []
        if hints := [*denied, *self._hints]:
            last = "\n".join([last.rstrip() or "(no output)", *(f"({each})" for each in hints), ""])
        error = RuntimeError(f"Build failed: {step.text}\n{last}")
        error.add_note(
            f"{self._where}:{step.line}: the command ended with exit code {code}; the log of the "
            f"build is {self._log.path}"
        )
        return error

    async def _copy(self, step: Copy, selection: Selection) -> None:
        if not selection.items:
            return
        place = self._staging / str(self._n_staged)
        self._n_staged += 1
        try:
            await run_in_thread(lambda: stage(selection.items, place))
        except OSError as error:
            where = f"{self._where}:{step.line}"
            raise ImageError(
                f"{where}: {error.filename}: cannot be copied: {reason_of(error)}"
            ) from error
        is_there = await self._is_directory(step.target)
        if selection.is_file and not (step.is_directory or is_there):
            source, paths = place / selection.items[0].path, [step.target]
        else:
            source = place
            paths = [posixpath.join(step.target, item.path) for item in selection.items]
            paths += [] if is_there else [step.target]
        await self._box.put(source, step.target)
        if step.chown is not None:
            await self._chown(step, step.chown, paths)

    async def _copy_from(self, step: Copy, origin: Parts) -> None:
        async with self._opened(origin) as source:
            try:
                found = await source.find_sources([split_pattern(one) for one in step.sources])
                if found:
                    places, placing = await self._place(step, found)
                    await source.send_files(places, self._box, placing)
            except SandboxError as error:
                raise self._uncopied(step, str(error)) from error

    def _uncopied(self, step: Copy, reason: str) -> ImageError:
        keyword = "ADD" if step.is_add else "COPY"
        return ImageError(f"{self._where}:{step.line}: {keyword}: {reason}")

    async def _place(
        self, step: Copy, found: Sequence[FoundSource]
    ) -> tuple[list[tuple[str, str]], Placing]:
        """Return the names of files below the target, and the target, by Docker's rules."""
        target, is_there = step.target, await self._is_directory(step.target)
        if len(found) == 1 and not (found[0].is_directory or step.is_directory or is_there):
            above, name = posixpath.split(target)
            return [(found[0].real, name)], Placing(above, step.chown, step.chmod)
        places = [
            (one.real, "" if one.is_directory else posixpath.basename(one.path)) for one in found
        ]
        return places, Placing(target, step.chown, step.chmod, owns_target=True)

    @asynccontextmanager
    async def _opened(self, origin: Parts) -> AsyncIterator[Box]:
        """Open a sandbox on another root file system, in which no program of it is run."""
        directory = self._staging / f"source{self._n_staged}"
        self._n_staged += 1
        session = Session(directory)
        session.root.mkdir(parents=True)
        parts = tuple(
            Part(target, lowers, *map(str, session.add_part(number, Path(lowers[0]))))
            for number, (target, lowers) in enumerate(origin)
        )
        try:
            box = await self._spawn(
                Blueprint(
                    session=f"{directory.parent.parent.name}-source",
                    root=str(session.root),
                    parts=parts,
                    network=Network.NONE,
                    subordinate=find_subordinate_ids(),
                    guarded=(),
                )
            )
            try:
                yield box
            finally:
                await box.kill()
        finally:
            discard(directory)

    async def _is_directory(self, path: str) -> bool:
        return await self._box.kind_of(path) == "directory"

    async def _chown(self, step: Step, owner: str, paths: Sequence[str]) -> None:
        if ":" not in owner:
            # Docker's rule without a group: a named user's own group, or the group of the number.
            owner = f"{owner}:{owner if owner.isdecimal() else ''}"
        for some in batched(paths, _PATHS_AT_ONCE):
            done = await self._box.run(Command(("chown", "-h", owner, *some), "/"))
            if done.return_code != 0:
                raise self._failure(step, done.return_code, done.output)


async def unpack_archive(box: Box, archive: Path, placing: Placing) -> None:
    """Unpack a tar archive, compressed or not, in a sandbox."""
    theirs, ours = os.pipe2(os.O_CLOEXEC)

    def send() -> None:
        with os.fdopen(ours, "wb") as pipe, opened(archive, Budget(archive.parent)) as stream:
            shutil.copyfileobj(stream, pipe, _PIECE)

    sending = asyncio.ensure_future(run_in_thread(send))
    try:
        await box.unpack_files(theirs, placing)
    finally:
        # The sandbox has closed its end of the pipe, so the thread ends too.
        await asyncio.wait([sending])
    with suppress(BrokenPipeError):
        sending.result()
