"""Flush the results of trials to the disk in the background.

A trial's result.json survives a kill of the runner as soon as it has its name. To survive a power
cut it must be flushed, which happens once a second in a thread, for all trials that ended
meanwhile, and once more before the job's own result is written: whatever a finished job counts is
on the disk. A power cut before that loses the results of the last seconds, and resume runs those
trials again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from proctor.errors import JobError
from proctor.files import sync_directory, sync_file
from proctor.sentence import reason_of


class Durable:
    """Results of one job's trials that are waiting to be flushed."""

    def __init__(self, directory: str, say: Callable[[str], None]) -> None:
        """`say` is called with a sentence about what could not be flushed."""
        self._directory = directory
        self._say = say
        self._waiting: list[str] = []
        self._syncing: asyncio.Task[None] | None = None

    def note(self, trial: str) -> None:
        """Queue the result of a trial."""
        self._waiting.append(trial)

    def begin(self) -> None:
        """Start flushing, unless it is in progress."""
        if self._waiting and (self._syncing is None or self._syncing.done()):
            self._syncing = asyncio.create_task(self._sync())

    async def finish(self) -> None:
        """Return when all queued results are on the disk."""
        while self._waiting or (self._syncing is not None and not self._syncing.done()):
            self.begin()
            if self._syncing is not None:
                await asyncio.wait([self._syncing])

    async def _sync(self) -> None:
        trials, self._waiting = self._waiting, []
        for sentence in await asyncio.to_thread(_sync_trials, self._directory, trials):
            # If job.log cannot be written, writing the job's result fails next and reports it.
            with suppress(JobError):
                self._say(sentence)


def _sync_trials(directory: str, trials: list[str]) -> list[str]:
    said = []
    for trial in trials:
        path = f"{directory}/{trial}/result.json"
        try:
            sync_file(path)
            # The rename is only durable once its directory is flushed too.
            sync_directory(f"{directory}/{trial}")
        except FileNotFoundError:
            # It was not written, or has moved to attempts/; that is handled elsewhere.
            continue
        except OSError as error:
            said.append(f"{path} may not be on the disk: {reason_of(error)}")
    try:
        sync_directory(directory)
    except OSError as error:
        said.append(f"{directory} may not be on the disk: {reason_of(error)}")
    return said
