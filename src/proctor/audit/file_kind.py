"""Recognise what a path contains, by its contents.

The file name counts only if the bytes are not conclusive: a trace that is empty or begins with
garbage. Does not check the contents; checks/ does.
"""

import json
import os
import re
from collections.abc import Set
from enum import StrEnum

import msgspec

from proctor.errors import InputError
from proctor.files import read_head, read_small
from proctor.harbor.documents import is_trial
from proctor.json_values import check_values, has_more_values
from proctor.sentence import reason_of

_HEAD = 1 << 16
# A first line longer than _HEAD is read up to this size; beyond it, the file name decides.
_LONGEST_HEAD = 1 << 24
# Most values of an array, whose items are decoded one by one.
_MOST_VALUES = 4_000_000

_MARK = b"\xef\xbb\xbf"
_BLANK = _MARK + b" \t\r\n"
_ZSTD = b"\x28\xb5\x2f\xfd"
# A checkpoint: origin, size and root, one per line.
_NOTE = re.compile(rb"[^\n{\[]{1,1000}\n[0-9]{1,20}\n[A-Za-z0-9+/]{43}=\n")
# Parts of a ledger; two are enough, since a damaged one may have lost the others.
_LEDGER = ("checkpoint", "entries", "entries/000000.jsonl", "artifacts")


class FileKind(StrEnum):
    """What can be checked or shown, by the names that people see."""

    TRAJECTORY = "trajectory"
    CONVERSATION = "conversation"
    ATIF = "ATIF trajectory"
    OUTPUT = "command output"
    RECORD = "trial record"
    CERTIFICATE = "certificate"
    LEDGER = "ledger"
    CHECKPOINT = "checkpoint"
    PROOF = "proof"
    CLAIM = "claim"
    BUNDLE = "bundle"
    TASK = "task"
    DATASET = "dataset"
    TRIAL = "trial"
    JOB = "job"


TRACES = frozenset({FileKind.TRAJECTORY, FileKind.CONVERSATION, FileKind.ATIF, FileKind.OUTPUT})


def find_file_kind(path: str) -> FileKind:
    """Recognise what is at a path.

    Raises:
        InputError: nothing is there, or nothing that is recognised.
    """
    if os.path.isdir(path):
        return _find_directory(path)
    try:
        head, is_whole = _read_beginning(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {reason_of(error)}") from error
    found = _find_mark(path, head) or _find_line(head, is_whole=is_whole)
    found = found or _find_document(path, head, is_whole=is_whole) or _find_name(path)
    if found is None:
        known = ", ".join(FileKind)
        raise InputError(f"{path}: {_find_reason(head)}; expected one of: {known}")
    return found


def _read_beginning(path: str) -> tuple[bytes, bool]:
    """The first lines of a file, at least one if it is JSON, and whether that is all of it."""
    size = _HEAD
    head = read_head(path, size)
    while len(head) == size < _LONGEST_HEAD and _is_one_line(head):
        size *= 16
        head = read_head(path, size)
    return head, len(head) < size


def _is_one_line(head: bytes) -> bool:
    text = head.lstrip(_BLANK)
    return text.startswith((b"{", b"[")) and b"\n" not in text


def _find_reason(head: bytes) -> str:
    """Why a file was not recognised."""
    if not head.strip():
        return "an empty file"
    if _keys(head) is not None:
        return "a JSON document with unknown keys"
    try:
        msgspec.json.decode(head, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "torn or not JSON"
    return "JSON, but not an object"


def _find_directory(path: str) -> FileKind:
    def has(*names: str) -> bool:
        return any(os.path.lexists(os.path.join(path, name)) for name in names)

    if has("task.toml"):
        return FileKind.TASK
    if sum(map(has, _LEDGER)) > 1:
        return FileKind.LEDGER
    if has("lock.json", "job.log", "result.json", "config.json"):
        return FileKind.TRIAL if is_trial(path) else FileKind.JOB
    if _is_empty(path):
        raise InputError(
            f"{path}: an empty directory; expected a job, a trial, a task, a dataset or a ledger"
        )
    return FileKind.DATASET


def _is_empty(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except OSError:
        return False  # reported by the command that reads it


def _find_mark(path: str, head: bytes) -> FileKind | None:
    """By the first bytes of files that are not JSON: a signed note or compressed data."""
    if _NOTE.match(head):
        return FileKind.CHECKPOINT
    if not head.startswith(_ZSTD):
        return None
    return FileKind.BUNDLE if path.endswith((".tar.zst", ".tzst")) else FileKind.CLAIM


def _find_line(head: bytes, *, is_whole: bool) -> FileKind | None:
    """By the first line that is a complete JSON value: for files of JSON lines."""
    if not is_whole:
        head = head[: head.rfind(b"\n") + 1]
    for line in head.removeprefix(_MARK).split(b"\n"):
        if line.strip() and (keys := _keys(line)) is not None:
            return _find_keys(keys, line)
    return None


def _find_document(path: str, head: bytes, *, is_whole: bool) -> FileKind | None:
    """By the keys of a file that is one JSON document."""
    endless = not is_whole and _is_one_line(head) and path.endswith(".jsonl")
    if endless or not head.lstrip(_BLANK).startswith(b"{"):
        return None
    try:
        data = head if is_whole else read_small(path)
    except OSError:
        return None  # too large for a document
    keys = _keys(data)
    return None if keys is None else _find_keys(keys, data)


def _keys(data: bytes) -> Set[str] | None:
    """The keys of an object, or of the first object of an array; None if it is neither."""
    data = data.removeprefix(_MARK)
    if data.lstrip(_BLANK).startswith(b"[") and has_more_values(data, _MOST_VALUES):
        return None
    try:
        value = msgspec.json.decode(data, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
        if isinstance(value, list):
            return _keys(bytes(value[0])) if value else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _keys_of_damaged(data)
    return value.keys()


def _keys_of_damaged(data: bytes) -> Set[str] | None:
    """The keys of almost valid JSON; the check of its kind reports what is wrong."""
    try:
        check_values(data)
        value = json.loads(data.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        value = value[0] if value else None
    return value.keys() if isinstance(value, dict) else None


_SIGNS: tuple[tuple[frozenset[str], FileKind], ...] = (
    (frozenset({"format", "profile"}), FileKind.CERTIFICATE),
    (frozenset({"format", "certificate"}), FileKind.CLAIM),
    (frozenset({"format", "kind", "path"}), FileKind.PROOF),
    (frozenset({"version", "format"}), FileKind.TRAJECTORY),
    (frozenset({"step", "role"}), FileKind.TRAJECTORY),
    (frozenset({"steps", "agent"}), FileKind.ATIF),
    (frozenset({"trial_id"}), FileKind.RECORD),
    (frozenset({"event"}), FileKind.CONVERSATION),
    (frozenset({"role"}), FileKind.CONVERSATION),
    (frozenset({"kind", "parts"}), FileKind.CONVERSATION),
)


def _find_keys(keys: Set[str], data: bytes) -> FileKind | None:
    if "schema_version" in keys and b'"ATIF-v' in data:
        return FileKind.ATIF
    if {"version", "format"} <= keys and b'"proctor-output"' in data:
        return FileKind.OUTPUT
    return next((thing for signs, thing in _SIGNS if signs <= keys), None)


def _find_name(path: str) -> FileKind | None:
    name = os.path.basename(path)
    if not name.endswith(".jsonl"):
        return None
    return FileKind.CONVERSATION if "conversation" in name else FileKind.TRAJECTORY
