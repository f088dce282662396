"""The files of a running trial that the driver shows: its log, its record, its trace.

A worker sends what was added to them; the driver writes it where the trial's files will be, so that
pages, `trace --follow` and a later `resume` find what a local trial would have left by then. When
the trial ends, everything that it left takes their place.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from proctor.cluster.archive import unpack
from proctor.cluster.link import Live
from proctor.errors import RecordError, TrialError
from proctor.files import open_plain, replace_file, write_all
from proctor.job.attempts import RESULT, list_names
from proctor.ledger.submission import ATTEMPTS
from proctor.trial.clock import SYSTEM
from proctor.trial.opening import begin_result, find_redactor
from proctor.trial.recording import Recording
from proctor.trial.spec import TrialSpec

_GROWING: Final = ("trial.log", "agent/trajectory.jsonl", "agent/conversation.jsonl")
_RECORD: Final = "record.json"
_REPLACED: Final = (_RECORD,)
_INCOMING: Final = ".incoming-"
_PIECE: Final = 1 << 20
_MOST: Final = 64 << 20
"""Most bytes that are shown of one file."""


class LiveSource:
    """The worker's end: finds what was added to the files of a trial."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sent: dict[str, int] = {}
        self._stamps: dict[str, int] = {}

    def find_changes(self) -> Iterator[Live]:
        """Yield what is new since the last call."""
        for name in (*_REPLACED, *_GROWING):
            path = self._directory / name
            try:
                found = path.lstat()
                is_new = self._stamps.get(name) != found.st_mtime_ns
                self._stamps[name] = found.st_mtime_ns
                if is_new:
                    yield from self._read(name, path)
            except OSError:
                # Not there yet, or no plain file: an agent writes here too.
                continue

    def _read(self, name: str, path: Path) -> Iterator[Live]:
        with open_plain(path) as file:
            if name in _REPLACED:
                yield Live(name, file.read(_PIECE))
                return
            sent = self._sent.get(name, 0)
            file.seek(sent)
            data = file.read(_PIECE if sent < _MOST else 0)
            self._sent[name] = sent + len(data)
            if data:
                # What is left is sent next time, even if nothing is added.
                self._stamps.pop(name, None) if len(data) == _PIECE else None
                yield Live(name, data, sent)


def _merge(source: Path, target: Path) -> None:
    """Move what `target` does not have."""
    for path in sorted(source.iterdir()):
        place = target / path.name
        if not os.path.lexists(place):
            shutil.move(path, place)
        elif path.is_dir() and not path.is_symlink() and place.is_dir() and not place.is_symlink():
            _merge(path, place)


class LiveTarget:
    """The driver's end: the directory of a trial until it is handed over."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._sizes: dict[str, int] = {}

    def begin(self, spec: TrialSpec, host: Mapping[str, str]) -> None:
        """Make the directory, with the trial's record and config.json: now it has begun."""
        self.directory.mkdir(parents=True, exist_ok=True)
        recording = Recording(spec, str(self.directory), find_redactor(spec, host))
        # The node says what is wrong with a record that cannot be made.
        with contextlib.suppress(RecordError):
            # Before anything else: if this process is killed, what has no record is never sealed.
            recording.note_phase(begin_result(spec, SYSTEM.now()), "setup", None)
        recording.file.close()
        config = spec.config.model_dump_json(indent=4)
        replace_file(self.directory / "config.json", config.encode())

    def write(self, live: Live) -> None:
        """Write what was added to a file. What does not fit is left out: it is only shown."""
        path = self.directory / live.name
        if live.name in _REPLACED and len(live.data) <= _PIECE:
            replace_file(path, live.data)
        elif live.name in _GROWING and live.at == self._sizes.get(live.name, 0) < _MOST:
            path.parent.mkdir(exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
            try:
                write_all(fd, live.data)
            finally:
                os.close(fd)
            self._sizes[live.name] = live.at + len(live.data)

    def clear(self, keep: Collection[str] = ()) -> None:
        """Remove everything but earlier attempts, and these.

        Raises:
            TrialError: something cannot be removed.
        """
        try:
            for name in list_names(str(self.directory)):
                path = self.directory / name
                if name == ATTEMPTS or name in keep:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        except OSError as error:
            raise TrialError(f"{self.directory}: cannot be replaced: {error}") from error

    def replace(self, archive: BinaryIO) -> None:
        """Put everything that the trial left in the place of what was shown, its result last.

        If this process is killed meanwhile, the trial has a record, and no result: that of its
        beginning, unless nothing else was missing.
        """
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=_INCOMING) as folder:
            place = Path(folder)
            unpack(archive, place)
            shown = [_RECORD] if (place / _RECORD).is_file() else []
            self.clear([place.name, *shown])
            for path in _end_last(place):
                shutil.move(path, self.directory / path.name)

    def add_left(self, archive: bytes) -> None:
        """Add what a killed worker left. Files that only the driver has, of models, stay."""
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=_INCOMING) as folder:
            place = Path(folder)
            unpack(BytesIO(archive), place)
            for name in _GROWING:
                (self.directory / name).unlink(missing_ok=True)
            if (place / _RECORD).is_file():
                # In one step: an attempt without a record is never sealed.
                (place / _RECORD).replace(self.directory / _RECORD)
            _merge(place, self.directory)

    def drop(self) -> None:
        """Remove the trial, which never ran; earlier attempts stay."""
        self.clear()
        if not list_names(str(self.directory)):
            self.directory.rmdir()


def _end_last(place: Path) -> list[Path]:
    """What is to be moved: the record, which has the score, and the result at the end."""
    # No worker has earlier attempts of a trial; those here stay.
    paths = [path for path in place.iterdir() if path.name != ATTEMPTS]
    return sorted(paths, key=lambda path: (path.name == RESULT, path.name == _RECORD, path.name))
