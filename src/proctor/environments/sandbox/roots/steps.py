"""The steps of a Dockerfile, done in a sandbox one after the other. Nothing here is cached."""

import asyncio
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import batched
from pathlib import Path

from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.roots.context import Selection, stage
from proctor.environments.sandbox.roots.recipe import Copy, MakeDirectory, Run, Step
from proctor.errors import ImageError
from proctor.sentence import reason_of

_LAST_LINES = 100
_LAST_CHARACTERS = 10_000
_PATHS_AT_ONCE = 500
_DENIED = "Permission denied"
_HINT = (
    "(an ordinary user's sandbox cannot change the host's own files, such as those below /usr; "
    "build on an image that was imported, or run as root)"
)
_SCRIPT = "/tmp/.proctor-run"  # noqa: S108 - inside the sandbox


@dataclass(frozen=True, slots=True)
class Order:
    """A step, with the files that it copies."""

    step: Step
    selection: Selection | None = None


async def run_in_thread[T](act: Callable[[], T]) -> T:
    """Do something slow beside the event loop; a cancellation waits until it is done.

    What it writes is not deleted under its hands so.
    """
    task = asyncio.ensure_future(asyncio.to_thread(act))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class Workshop:
    """A sandbox in which a Dockerfile is built."""

    def __init__(self, box: Box, where: str, staging: Path) -> None:
        self._box = box
        self._where = where
        self._staging = staging
        self._n_staged = 0

    async def do(self, order: Order) -> None:
        """Do one step.

        Raises:
            RuntimeError: its command failed: `Build failed: RUN …` and what was printed last.
            ImageError: files cannot be put in.
        """
        match order.step:
            case Run() as run:
                await self._run(run)
            case MakeDirectory() as directory:
                await self._make_directory(directory)
            case Copy() as copy if order.selection is not None:
                await self._copy(copy, order.selection)

    async def _run(self, run: Run) -> None:
        argv = run.argv
        if run.script is not None:
            await self._put_text(run.script, _SCRIPT)
            argv = (_SCRIPT,)
        done = await self._box.run(Command(argv, run.cwd, dict(run.env), run.user))
        if run.script is not None:
            await self._box.run(Command(("rm", "-f", _SCRIPT), "/"))
        if done.return_code != 0:
            raise self._failure(run, done.return_code, done.output)

    def _failure(self, step: Step, code: int, output: bytes) -> RuntimeError:
        text = output.decode("utf-8", errors="replace")[-_LAST_CHARACTERS:]
        last = "".join(text.splitlines(keepends=True)[-_LAST_LINES:])
        if _DENIED in last and not is_all_powerful():
            last = f"{last.rstrip()}\n{_HINT}\n"
        error = RuntimeError(f"Build failed: {step.text}\n{last}")
        error.add_note(f"{self._where}:{step.line}: the command ended with exit code {code}")
        return error

    async def _make_directory(self, step: MakeDirectory) -> None:
        is_new = not await self._is_directory(step.path)
        if is_new:
            empty = self._staging / "empty"
            empty.mkdir(exist_ok=True)
            await self._box.put(empty, step.path)
        if is_new and step.user not in ("root", "0"):
            await self._chown(step, step.user, [step.path])

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

    async def _put_text(self, text: str, target: str) -> None:
        path = self._staging / "script"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        await self._box.put(path, target)

    async def _is_directory(self, path: str) -> bool:
        return await self._box.kind_of(path) == "directory"

    async def _chown(self, step: Step, owner: str, paths: Sequence[str]) -> None:
        if ":" not in owner:
            # Docker's rule for a user without a group: their own, or the one of that number.
            owner = f"{owner}:{owner if owner.isdecimal() else ''}"
        for some in batched(paths, _PATHS_AT_ONCE):
            done = await self._box.run(Command(("chown", "-h", owner, *some), "/"))
            if done.return_code != 0:
                raise self._failure(step, done.return_code, done.output)
