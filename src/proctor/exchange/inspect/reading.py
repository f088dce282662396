"""Log files of Inspect, as inspect_ai reads them in a process of its own.

    LOG.eval    a zip archive: a header, and each sample by itself
    LOG.json    one document: the header, with the samples in it

Samples are read on use, one at a time. What inspect_ai says is validated once, by the types here.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from proctor.errors import InspectError
from proctor.exchange.inspect.sample import EvalSpec, Failure, Sample
from proctor.files import read_head
from proctor.record.ids import shown_name
from proctor.sentence import shown
from proctor.traces.entry import Object

LARGEST_SAMPLE: Final = 256 << 20
"""Bytes of one sample as JSON."""
_SUFFIXES: Final = (".eval", ".json")
# How a log in the JSON form begins; its fields have a fixed order.
_BEGINNING = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"(status|eval)"\s*:')
_HEAD = 4096
_LONGEST_REASON = 500
_STOP_SEC = 5


class Step(msgspec.Struct, frozen=True):
    """A solver."""

    solver: str


class Plan(msgspec.Struct, frozen=True):
    """The solvers that ran."""

    steps: list[Step] = []


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says of all its samples."""

    version: int = 2
    status: str = "started"
    """started, success, cancelled or error."""
    eval: EvalSpec
    plan: Plan = Plan()
    error: Failure | None = None


class _Answer(msgspec.Struct, frozen=True):
    log: Header
    samples: list[tuple[int | str, int]]


@dataclass(frozen=True, slots=True)
class InspectLog:
    """A log whose header was read."""

    path: Path
    header: Header
    written: Object
    """The header as Inspect writes it."""
    samples: list[tuple[int | str, int]]
    """Id and epoch of each sample."""

    @property
    def name(self) -> str:
        """The file's name."""
        return shown_name(self.path.name)


class LogReader:
    """Reads logs with inspect_ai, in a process that starts with the first one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            _stop(self._process)
            self._process = None

    def load_log(self, path: Path) -> InspectLog:
        """Read the header of a log.

        Raises:
            InspectError: inspect_ai cannot read it, or is not installed.
        """
        found = self._ask(str(path), {"log": str(path)})
        answer = _convert(found, _Answer, str(path))
        return InspectLog(path, answer.log, found["log"], answer.samples)

    def load_sample(self, path: Path, key: tuple[int | str, int]) -> tuple[Sample, bytes]:
        """Read a sample, with attachments in place, and the sample as Inspect writes it.

        Raises:
            InspectError: it cannot be read.
        """
        where = render_place(path, key)
        found = self._ask(where, {"log": str(path), "sample": key})
        said = {"messages": found["messages"], "answer": found["answer"]}
        sample = _convert(found["sample"] | said, Sample, where)
        try:
            # Its fields have an order that a later inspect_ai may change.
            written = json.dumps(found["sample"], ensure_ascii=False, sort_keys=True)
            return sample, written.encode()
        except (RecursionError, UnicodeEncodeError) as error:
            raise InspectError(f"{where}: cannot be written as JSON: {error}") from error

    def _ask(self, where: str, request: Object) -> Object:
        process = self._process = self._process or _start()
        assert process.stdin is not None  # noqa: S101 - for the type
        assert process.stdout is not None  # noqa: S101 - for the type
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline(LARGEST_SAMPLE)
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            self._process = None
            code = _stop(process)
            what = f"more than {LARGEST_SAMPLE:,} bytes" if line else f"inspect_ai ended ({code})"
            raise InspectError(f"{where}: cannot be read: {what}")
        try:
            answer: Object = json.loads(line)
        except (RecursionError, ValueError) as error:
            raise InspectError(f"{where}: cannot be read: {error}") from error
        if (why := answer.get("refused")) is not None:
            words = " ".join(why.split())[:_LONGEST_REASON]
            raise InspectError(f"{where}: Inspect cannot read it: {words}")
        return answer


def parse_sample(data: bytes, where: str) -> Sample:
    """Read a sample as Inspect writes it, in which attachments stay references.

    Raises:
        InspectError: it is not such a sample.
    """
    try:
        value = json.loads(data)
    except (RecursionError, ValueError) as error:
        raise InspectError(f"{where}: not JSON: {error}") from error
    return _convert(value, Sample, where)


def render_place(path: Path, key: tuple[int | str, int]) -> str:
    """Which sample of which log."""
    return f"{shown_name(str(path))}: sample {shown(key[0])}, epoch {key[1]}"


def _convert[T](value: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InspectError(f"{where}: {error}") from error


def _start() -> subprocess.Popen[bytes]:
    if importlib.util.find_spec("inspect_ai") is None:
        raise InspectError(
            "logs of Inspect are read with inspect_ai (some 250 MB), which is not installed: "
            "pip install 'proctor[inspect]'"
        )
    return subprocess.Popen(
        # -P: no module of the directory that proctor was started in takes another's place.
        [sys.executable, "-P", "-m", "proctor.exchange.inspect.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _stop(process: subprocess.Popen[bytes]) -> int:
    """End the process; returns its exit code."""
    try:
        # Closes its input, at the end of which it ends.
        process.communicate(timeout=_STOP_SEC)
    except (OSError, subprocess.TimeoutExpired):
        process.kill()
        process.communicate()
    return process.returncode


def find_log_files(path: Path) -> tuple[list[Path], int]:
    """The log files at a path, and the number of other .json files: a file, or a directory.

    In a directory, links and hidden names are skipped.

    Raises:
        InspectError: there is none.
    """
    if not path.is_dir():
        if not path.is_file():
            what = "not a plain file" if os.path.lexists(path) else "no such file or directory"
            raise InspectError(f"{path}: {what}; expected an .eval or .json log of Inspect")
        return [path.resolve() if path.is_symlink() else path], 0
    files = list(_walk(path))
    logs = [file for file in files if file.suffix == ".eval" or _is_log(file)]
    if not logs:
        raise InspectError(f"{path}: no log in it; expected .eval or .json logs of Inspect")
    return logs, len(files) - len(logs)


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(_SUFFIXES) and name[0] != "." and not path.is_symlink():
                yield path


def _is_log(path: Path) -> bool:
    try:
        return _BEGINNING.match(read_head(str(path), _HEAD)) is not None
    except OSError:
        # Treat it as a log, so that reading it reports the error.
        return True
