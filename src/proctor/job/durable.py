"""Results of trials that a power cut does not take away, made so beside the job.

A trial's result.json is whole after a kill of the runner from the moment it has its name. That it
is on the disk is seen to once a second for all trials that ended meanwhile, in a thread, and once
more before the job's own result is written: what a job that is over counts is there for good. A
power cut before that costs the results of the last seconds, and resume runs those trials again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from proctor.errors import JobError
from proctor.files import sync_directory, sync_file
from proctor.sentence import reason_of


class Durable:
    """The results of one job's trials on their way to the disk."""

    def __init__(self, directory: str, say: Callable[[str], None]) -> None:
        """`say` is told what could not be brought to the disk."""
        self._directory = directory
        self._say = say
        self._waiting: list[str] = []
        self._syncing: asyncio.Task[None] | None = None

    def note(self, trial: str) -> None:
        """The trial of this name has a result."""
        self._waiting.append(trial)

    def begin(self) -> None:
        """Begin with what waits, unless that is being done."""
        if self._waiting and (self._syncing is None or self._syncing.done()):
            self._syncing = asyncio.create_task(self._sync())

    async def finish(self) -> None:
        """Return when all that was noted is on the disk."""
        while self._waiting or (self._syncing is not None and not self._syncing.done()):
            self.begin()
            if self._syncing is not None:
                await asyncio.wait([self._syncing])

    async def _sync(self) -> None:
        trials, self._waiting = self._waiting, []
        for sentence in await asyncio.to_thread(_sync_trials, self._directory, trials):
            # Where not even job.log can be written, the job's own result says so next.
            with suppress(JobError):
                self._say(sentence)


def _sync_trials(directory: str, trials: list[str]) -> list[str]:
    said = []
    for trial in trials:
        path = f"{directory}/{trial}/result.json"
        try:
            sync_file(path)
            sync_directory(f"{directory}/{trial}")
        except FileNotFoundError:
            # It could not be written, or was moved to attempts/: whoever did that knows.
            continue
        except OSError as error:
            said.append(f"{path} may not be on the disk: {reason_of(error)}")
    try:
        sync_directory(directory)
    except OSError as error:
        said.append(f"{directory} may not be on the disk: {reason_of(error)}")
    return said
