"""Outputs of a trial: the verifier's output, errors, media."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import DamageError, NotThereError
from proctor.files import open_plain, read_head
from proctor.web.trials.evidence import KnownFile
from proctor.web.trials.filetypes import HEAD, FileType, find_type, may_be_media
from proctor.web.trials.known import Known
from proctor.web.trials.phases import TrialTimes

# Bytes shown of an output: the last ones, where results are.
_END = 16_384
_MOST_OUTPUTS = 12
_MOST_MEDIA = 40
_REWARDS = ("reward.json", "reward.txt")
_TEXTS = (".txt", ".log", ".json", ".xml", ".out", ".err", ".md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A printed text, or the end of it."""

    file: KnownFile
    text: str | None = None
    left_out: int = 0
    """Bytes before the shown part."""
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Medium:
    """A picture, sound or video."""

    file: KnownFile
    element: str
    """image, audio or video."""


@dataclass(frozen=True, slots=True)
class Error:
    """The exception that ended a trial or a step."""

    step: str
    kind: str
    message: str
    traceback: str


def read_verifier_outputs(known: Known) -> list[Output]:
    """The ends of the verifier's outputs, of the trial and of its steps."""
    wanted = [file for file in known.files if _is_output(file.path)]
    wanted.sort(key=lambda file: ("test-stdout" not in file.path, file.path))
    return [_read(known, file) for file in wanted[:_MOST_OUTPUTS]]


def _is_output(path: str) -> bool:
    parts = path.split("/")
    own = parts[2:] if parts[0] == "steps" else parts
    return own[:1] == ["verifier"] and own[-1] not in _REWARDS and own[-1].endswith(_TEXTS)


def _read(known: Known, file: KnownFile) -> Output:
    if not file.is_here:
        return Output(file=file)
    try:
        with known.traced.open_file(file.path) as path:
            text, left_out = read_end(path, _END)
    except (OSError, DamageError, NotThereError) as error:
        return Output(file=file, problem=str(error))
    return Output(file=file, text=text, left_out=left_out)


def read_end(path: str, size: int) -> tuple[str, int]:
    """The end of a file as text, and how many bytes come before it."""
    with open_plain(Path(path)) as file:
        whole = os.fstat(file.fileno()).st_size
        begin = max(whole - size, 0)
        file.seek(begin)
        data = file.read(size)
    # Start at a line: the cut may be in the middle of a line or of a character.
    if begin and (end := data.find(b"\n")) >= 0:
        data, begin = data[end + 1 :], begin + end + 1
    return data.decode("utf-8", "replace"), begin


def find_errors(times: TrialTimes | None) -> list[Error]:
    """Exceptions of the trial and its steps, from result.json."""
    return [
        Error(where, each.exception_type, each.exception_message, each.exception_traceback)
        for where, each in (times.exceptions() if times else ())
    ]


def find_media(known: Known) -> list[Medium]:
    """Pictures, sound and video among the trial's files, recognised by their contents."""
    wanted = [file for file in known.files if file.is_here and may_be_media(file.path)]
    return list(_look_into(known, wanted[:_MOST_MEDIA]))


def _look_into(known: Known, files: Iterable[KnownFile]) -> Iterable[Medium]:
    for file in files:
        try:
            found = look_at(known, file)
        except (OSError, DamageError, NotThereError):
            continue
        if found.element is not None:
            yield Medium(file, found.element)


def look_at(known: Known, file: KnownFile) -> FileType:
    """Detect the type of a file from its first bytes."""
    if known.ledger is not None and file.sha256 is not None:
        return find_type(known.ledger.artifacts.load_head(file.sha256, HEAD))
    with known.traced.open_file(file.path) as path:
        return find_type(read_head(path, HEAD))
