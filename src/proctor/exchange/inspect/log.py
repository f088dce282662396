"""Log files of Inspect: the header, and where each sample is.

    LOG.eval    a zip archive: header.json (or, while it is written, _journal/start.json) and
                samples/SAMPLE_epoch_N.json
    LOG.json    one document: the header, with the samples in it as a list

The kind is recognised by content. A sample is read on use, one at a time. NaN, which Inspect writes
for a score that it leaves out, is accepted. Of a header, `eval` must be an object; the rest may be
anything.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from proctor.errors import InspectError
from proctor.exchange.foreign_values import find_text, parse_int
from proctor.exchange.inspect.archive import LARGEST_MEMBER, list_members, read_member
from proctor.files import read_head, read_small
from proctor.json_values import check_values
from proctor.record.ids import shown_name
from proctor.sentence import reason_of, shown
from proctor.traces.entry import Object

NEWEST_VERSION: Final = 2
"""Version of the format that is read; in version 3, samples are split into many members."""
SUFFIXES: Final = (".eval", ".json")
HEADERS: Final = ("header.json", "_journal/start.json")
SAMPLES: Final = "samples/"
_ZIP = b"PK"
_MOST_VALUES = 10_000_000
# How a log in the JSON form begins; its fields have a fixed order.
_BEGINNING = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"(status|eval)"\s*:')
_HEAD = 4096
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_int=parse_int)


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """Where a sample can be read."""

    name: str
    """Its path in the archive, or its number in the list."""
    read: Callable[[], bytes]
    """Reads its bytes, exactly as they are in the log."""


@dataclass(frozen=True, slots=True)
class InspectLog:
    """A log whose header was read."""

    path: Path
    version: int
    status: str
    """started, success, cancelled or error; started if the header does not say."""
    eval: Object
    """What was run: task, model, dataset, configuration."""
    plan: Object
    """The solvers."""
    error: str | None
    """Why the evaluation failed."""
    samples: tuple[SamplePlace, ...]

    @property
    def name(self) -> str:
        """The file's name."""
        return shown_name(self.path.name)


def parse_json(data: bytes | str, where: str) -> Any:
    """Parse JSON text, in which NaN and infinite numbers are allowed.

    Raises:
        InspectError: it is not JSON, nested too deeply, or would take too much memory.
    """
    try:
        if isinstance(data, bytes):
            check_values(data, _MOST_VALUES)
            data = data.decode()
        return json.loads(data, parse_int=parse_int)
    except RecursionError as error:
        raise InspectError(f"{where}: nested too deeply to parse") from error
    except ValueError as error:
        raise InspectError(f"{where}: not JSON: {error}") from error


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
            if name.endswith(SUFFIXES) and name[0] != "." and not path.is_symlink():
                yield path


def _is_log(path: Path) -> bool:
    try:
        return _BEGINNING.match(read_head(str(path), _HEAD)) is not None
    except OSError:
        # Treat it as a log, so that reading it reports the error.
        return True


def load_log(path: Path) -> InspectLog:
    """Read the header of a log, and find its samples.

    Raises:
        InspectError: it is not a log of Inspect, or of a newer version.
    """
    try:
        is_archive = read_head(str(path), len(_ZIP)) == _ZIP
    except OSError as error:
        raise InspectError(f"{path}: cannot be read: {reason_of(error)}") from error
    return _load_archive(path) if is_archive else _load_document(path)


def _load_archive(path: Path) -> InspectLog:
    members = list_members(path)
    header = next((members[name] for name in HEADERS if name in members), None)
    if header is None:
        raise InspectError(f"{path}: a zip archive without {HEADERS[0]}; expected a log of Inspect")
    value = parse_json(read_member(path, header), f"{path}: {header.name}")
    samples = [
        SamplePlace(name, partial(read_member, path, member))
        for name, member in members.items()
        if name.startswith(SAMPLES) and name.endswith(".json")
    ]
    return _make_log(path, value, samples)


def _load_document(path: Path) -> InspectLog:
    # Two calls: what the cache holds must not be changed by who uses it.
    header, spans = _read_document(path)
    samples = [
        SamplePlace(f"sample {number}", partial(_read_span, path, number))
        for number in range(1, len(spans) + 1)
    ]
    return _make_log(path, dict(header), samples)


def _read_span(path: Path, number: int) -> bytes:
    _, spans = _read_document(path)
    if number > len(spans):
        raise InspectError(f"{path}: changed while it was read; import it again")
    return spans[number - 1]


@lru_cache(maxsize=1)
def _read_document(path: Path) -> tuple[Object, list[bytes]]:
    """The header of a log in the JSON form, and the bytes of each sample.

    The samples of a document are asked for one after the other, so the last document is kept.
    """
    try:
        data = read_small(str(path), LARGEST_MEMBER)
        check_values(data, _MOST_VALUES)
        return _split_document(data.decode("utf-8-sig"))
    except OSError as error:
        raise InspectError(f"{path}: cannot be read: {reason_of(error)}") from error
    except RecursionError as error:
        raise InspectError(f"{path}: nested too deeply to parse") from error
    except UnicodeDecodeError as error:
        raise InspectError(
            f"{path}: not a log of Inspect: neither a zip archive nor text; expected a zip archive "
            "or a JSON object"
        ) from error
    except ValueError as error:
        raise InspectError(
            f"{path}: not a log of Inspect: {error}; expected a zip archive or a JSON object"
        ) from error


def _split_document(text: str) -> tuple[Object, list[bytes]]:
    """Split a document into its header and the text of its samples."""
    if not text.strip():
        raise ValueError("it is empty")
    header: Object = {}
    samples: list[bytes] = []
    at = _expect(text, 0, "{")
    while not text.startswith("}", at := _skip(text, at)):
        key, at = _decode(text, at)
        at = _skip(text, _expect(text, at, ":"))
        if key == "samples" and text.startswith("[", at):
            samples, at = _split_list(text, at)
        else:
            header[str(key)], at = _decode(text, at)
        at = _skip(text, at)
        at = at if text.startswith("}", at) else _expect(text, at, ",")
    if _skip(text, at + 1) != len(text):
        raise ValueError(f"more text after its end at character {at + 1:,}")
    return header, samples


def _split_list(text: str, at: int) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    at = _expect(text, at, "[")
    while not text.startswith("]", at := _skip(text, at)):
        _, end = _decode(text, at)
        found.append(text[at:end].encode())
        at = _skip(text, end)
        at = at if text.startswith("]", at) else _expect(text, at, ",")
    return found, at + 1


def _decode(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except StopIteration as error:
        raise ValueError(f"no value at character {at:,}") from error


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, mark: str) -> int:
    at = _skip(text, at)
    if not text.startswith(mark, at):
        raise ValueError(f"no {mark!r} at character {at:,}")
    return at + 1


def _make_log(path: Path, header: Any, samples: list[SamplePlace]) -> InspectLog:
    if not isinstance(header, dict) or not isinstance(header.get("eval"), dict):
        raise InspectError(f"{path}: no `eval` object in its header; expected a log of Inspect")
    version = header.get("version", NEWEST_VERSION)
    if type(version) is not int or not 0 < version <= NEWEST_VERSION:
        raise InspectError(
            f"{path}: version {shown(version)} of the log format; expected 1 or {NEWEST_VERSION}: "
            "`inspect log convert` writes it"
        )
    plan, error = header.get("plan"), header.get("error")
    return InspectLog(
        path=path,
        version=version,
        status=find_text(header.get("status")) or "started",
        eval=header["eval"],
        plan=plan if isinstance(plan, dict) else {},
        error=find_text(error.get("message")) if isinstance(error, dict) else None,
        samples=tuple(samples),
    )
