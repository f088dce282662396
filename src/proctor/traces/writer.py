r"""Writes trajectory.jsonl, a line for each thing an agent does. Python 3.8+ on Linux or macOS.

This file stands alone and needs only the standard library: `proctor trace writer` prints it, to be
copied into a container.

    from trajectory_writer import TrajectoryWriter

    with TrajectoryWriter(secrets={"API_KEY": key}) as trace:
        trace.system("You are an engineer.")
        trace.user("Calculate the voltage drop.")
        trace.new_step()
        trace.assistant("I will compute it.")
        trace.tool_call("bash", "python calc.py")
        trace.tool_result("bash", "5.2 V", exit_code=0, duration_ms=142)

Without a path it writes the file that the variable PROCTOR_TRAJECTORY names, which proctor sets for
every agent, else /workspace/trajectory.jsonl; the directory is created if it is missing. If nothing
can be written there, it says so once on standard error and the agent goes on without a trace. A
path that is given must be writable: for that file, every call raises its errors.

A line is in the file when the call returns, and killing the program cannot take it back;
`fsync=True` guards against power cuts too. A file that is there is continued: no byte of it is
changed, not even the zero bytes that a power cut leaves, a torn last line gets a line end, steps
count on.

If it is deleted meanwhile, the next call brings it back, where it was and with all that was in it.
If there is a trajectory in its place by then, that one is continued, and what was in the deleted
file is gone. If there is anything else, the call fails, and fails again until it is taken away:
OSError for a symbolic link, ValueError for a file that is no trajectory. Neither is touched.

No value makes a call fail. What JSON lacks is written as text (NaN, bytes, paths, objects), half a
surrogate pair as \udc80 spelled out; what does not fit its field goes to metadata, under "unfit".
What does fail, for a path that was given: OSError when the disk cannot take the line, ValueError
for a file that is no trajectory.

It does not read traces. It cannot see a secret that is split over two calls, or encoded in a way
that Redactor does not list.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import hashlib
import json
import math
import operator
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

VARIABLE = "PROCTOR_TRAJECTORY"
"""The variable that names the file in an agent's environment."""
DEFAULT_PATH = "/workspace/trajectory.jsonl"
"""The file where no variable names one."""
HEADER = {"version": 1, "format": "aec-bench-trajectory"}
ROLES = ("system", "user", "assistant", "tool_call", "tool_result")
KEYS = (
    *("role", "step", "content", "tool_name", "command", "arguments"),
    *("stdout", "stderr", "exit_code", "duration_ms", "media", "metadata", "output_summary"),
    *("call_type", "meta_harness", "timestamp"),
)
"""Every key an entry may have, in the order in which they are written."""

_OWN_WORDS = frozenset((*ROLES, "warmup", "main", "subagent"))
_NUMBERS = frozenset(("step", "exit_code", "duration_ms"))
_OBJECTS = frozenset(("arguments", "metadata", "meta_harness"))
# Some readers split by str.splitlines, which takes these for line ends; JSON would leave them raw.
_LINE_BREAKS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SUMMARY = 200
_DEEPEST = 100
_LARGEST_NUMBER = 1 << 1024
_CONTAINERS = (Mapping, list, tuple, set, frozenset)
_SHORTEST_SECRET = 4
_SHORTEST_ENCODED_SECRET = 8
_LOCK_TRIES = 100
_NOTHING = b"\0 \t\r\n"
_TAIL = 1 << 20
_LONGEST_LINE = 1 << 28


class Redactor:
    """Replaces secrets in text, and counts what it replaced.

    A secret is found with the blanks and line ends around it and, if 4 characters are left, without
    them, also inside a longer text that was encoded as a whole:

    - as it is;
    - as JSON escapes it, once or twice, with characters beyond ASCII escaped or not;
    - as Python's repr shows it;
    - as URLs hold it: quote, quote_plus or JavaScript's encodeURIComponent, %2F or %2f;
    - from 8 bytes on, blanks around it not counted, in base64, plain or for URLs.

    In its place stands [redacted:NAME], or [redacted] for one without a name. What is encoded in
    another way, in two of these ways at once, or broken over lines, is not found.
    """

    def __init__(
        self, secrets: Mapping[str, str] | Iterable[str], salt: bytes | None = None
    ) -> None:
        """Take secrets by name, or without names. Empty ones hide nothing and are passed over."""
        if isinstance(secrets, str):
            raise TypeError("secrets is one text; expected a mapping of names to values, or a list")
        named = secrets.items() if isinstance(secrets, Mapping) else ((None, s) for s in secrets)
        pairs = [(name or "", value) for name, value in named if value]
        for number, (name, value) in enumerate(pairs, 1):
            if not isinstance(value, str):
                raise TypeError(f"secret {name or number} is {type(value).__name__}; expected text")
            if len(value) < _SHORTEST_SECRET:
                raise ValueError(
                    f"secret {name or number} has {len(value)} characters; expected"
                    f" {_SHORTEST_SECRET} or more, because a shorter one would shred the text"
                )
        self._salt = os.urandom(16) if salt is None else salt
        self._secrets = [(_clean(name), _clean(value)) for name, value in pairs]
        self._counts = [0] * len(pairs)
        self._lock = threading.Lock()
        values = [value for _, value in self._secrets]
        forms = {form: at for at, value in enumerate(values) for form in _find_forms(value)}
        # What is a secret itself is counted as that, whatever else it is a form of; also as it was
        # given, with the halves of characters that an undecodable byte leaves.
        forms.update({_trim(value): at for at, (_, value) in enumerate(pairs)})
        forms.update({value: at for at, (_, value) in enumerate(pairs)})
        forms.update({value: at for at, value in enumerate(values)})
        self._forms = list(forms.items())
        self._labels = [self._choose_label(name) for name, _ in self._secrets]

    def redact_text(self, text: str) -> str:
        """The text without secrets."""
        if not self._occurs_in(text):
            return text
        parts, end = [], 0
        for start, stop, longest in self._find_regions(text):
            parts += [text[end:start], self._labels[longest]]
            end = stop
        redacted = "".join([*parts, text[end:]])
        # A label and what stands beside it may spell a secret; three characters cannot.
        return "***" if self._occurs_in(redacted) else redacted

    def redact(self, value: Any) -> Any:
        """A JSON value without secrets in its strings, keys and numbers."""
        return _to_json(value, self.redact_text)

    def report(self) -> list[dict[str, Any]]:
        """What was replaced: name, count, salt, and SHA-256 of salt and secret, both in hex.

        Anyone who knows the secret can confirm it with these; a short one can be found by guessing.
        """
        counted = [(secret, self._counts[at]) for at, secret in enumerate(self._secrets)]
        return [
            {
                "name": None if self._occurs_in(name) else name or None,
                "count": count,
                "salt": self._salt.hex(),
                "salted_sha256": hashlib.sha256(self._salt + value.encode()).hexdigest(),
            }
            for (name, value), count in counted
            if count
        ]

    def _occurs_in(self, text: str) -> bool:
        return any(form in text for form, _ in self._forms)

    def _choose_label(self, name: str) -> str:
        labels = [f"[redacted:{name}]"] if name else []
        return next((s for s in [*labels, "[redacted]"] if not self._occurs_in(s)), "***")

    def _find_regions(self, text: str) -> list[list[int]]:
        """Start, end and secret of every stretch to replace; secrets that overlap share one."""
        found = [
            (start, -start - len(form), at)
            for form, at in self._forms
            for start in _occurrences(form, text)
        ]
        regions: list[list[int]] = []
        with self._lock:
            for start, minus_end, at in sorted(found):
                if not regions or start >= regions[-1][1]:
                    regions.append([start, -minus_end, at])
                elif -minus_end > regions[-1][1]:
                    regions[-1][1] = -minus_end
                    if at == regions[-1][2]:
                        continue  # a secret that overlaps itself is one
                else:
                    continue  # inside a longer one
                self._counts[at] += 1
        return regions


class TrajectoryWriter:
    """An open trajectory. Threads may share it, and processes may append to one file."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        secrets: Redactor | Mapping[str, str] | Iterable[str] = (),
        fsync: bool = False,
        header: bool = True,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Open a new file, or continue the one that is there. Without a path, nothing is raised."""
        chosen = os.fspath(os.environ.get(VARIABLE) or DEFAULT_PATH if path is None else path)
        self.path = os.path.abspath(chosen)  # noqa: PTH100 - resolve() would follow links
        # Where it is brought back. Links may be turned round meanwhile, and the directory changed.
        self._place = os.path.realpath(chosen)
        self.redactor = secrets if isinstance(secrets, Redactor) else Redactor(secrets)
        self.step = 0
        self._call_type: str | None = None
        self._last_system: str | None = None
        self._fsync, self._header, self._clock = fsync, header, clock
        self._lock = threading.RLock()
        self._end = self._fd = -1
        self._closed = False
        # Nobody chose the usual place: an agent must not die of its trace.
        self._is_lenient, self._has_said = path is None, False
        try:
            if path is None:
                with contextlib.suppress(OSError):  # opening the file gives the reason
                    os.makedirs(os.path.dirname(self.path), exist_ok=True)  # noqa: PTH103, PTH120
            self._fd = _open(chosen)
            self._begin()
        except BaseException as error:
            self._release()
            if not self._is_lenient or not isinstance(error, (OSError, ValueError)):
                raise
            self._say_lost(error)

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. All of it is there already."""
        with self._lock:
            self._closed = True
            self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _say_lost(self, error: Exception) -> None:
        """Say once that the trace is not written, or not whole."""
        if self._has_said:
            return
        self._has_said = True
        reason = getattr(error, "strerror", None) or str(error)
        lost = "no trace is written" if self._fd < 0 else "lines are missing from the trace"
        with contextlib.suppress(Exception):  # standard error may be closed
            sys.stderr.write(
                f"{self.path}: {lost}: {reason}; set {VARIABLE} to a file that can be written\n"
            )

    def new_step(self, call_type: str | None = None) -> int:
        """Begin the agent's next turn and give its number. call_type: warmup, main or subagent."""
        with self._lock:
            self.step += 1
            self._call_type = call_type
            return self.step

    def system(self, text: str) -> None:
        """A system prompt; the same one again, with no other between, is not written again."""
        with self._lock:
            plain = _text(text, _clean)
            if plain != self._last_system:
                self.entry(role="system", content=plain)
                self._last_system = plain

    def user(self, text: str) -> None:
        """A message of the user, at the step where it came."""
        self.entry(role="user", content=text)

    def assistant(self, text: str) -> None:
        """What the model said."""
        self.entry(role="assistant", content=text)

    thinking = assistant

    def tool_call(
        self, tool_name: str, command: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """A tool that is about to run. Its result follows, unless the program dies first."""
        self.entry(role="tool_call", tool_name=tool_name, command=command, arguments=arguments)

    def tool_result(
        self,
        tool_name: str,
        stdout: str = "",
        stderr: str = "",
        exit_code: int | None = None,
        duration_ms: float | None = None,
        media: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        output_summary: str | None = None,
    ) -> None:
        """What a tool gave back. Without exit_code it is unknown, which is not 0."""
        self.entry(
            role="tool_result",
            tool_name=tool_name,
            stdout=stdout,
            stderr=stderr,
            exit_code=exit_code,
            duration_ms=duration_ms,
            media=media,
            metadata=metadata,
            output_summary=output_summary,
        )

    def entry(self, **fields: Any) -> None:
        """Any entry, by the keys of the format; None leaves a key out. step is the current one.

        Raises:
            TypeError: a key that the format does not have, or no role.
        """
        unknown = sorted(fields.keys() - set(KEYS))
        if unknown or fields.get("role") is None:
            found = f"unknown key {', '.join(unknown)}" if unknown else "no role"
            raise TypeError(f"{found}; an entry has a role and any of: {', '.join(KEYS)}")
        with self._lock:
            if self._closed:
                raise ValueError(f"{self.path}: closed; expected an open writer")
            line = render_line(self._complete(fields))
            if self._fd < 0:
                return  # it could not be opened, and that was said
            try:
                self._append(line)
            except (OSError, ValueError) as error:
                if not self._is_lenient:
                    raise
                self._say_lost(error)

    def _complete(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The entry as it is written: keys in order, every value of its type, no secrets."""
        given = {key: fields[key] for key in KEYS if fields.get(key) is not None}
        made: dict[str, Any] = {}
        unfit: dict[str, Any] = {}
        for key, value in given.items():
            fitted = _fit(key, value, self.redactor.redact_text)
            if fitted is None:
                unfit[key] = self.redactor.redact(value)
            else:
                made[key] = fitted
        made.setdefault("step", self.step)
        self.step = max(self.step, made["step"])
        if unfit:
            metadata = made.setdefault("metadata", {})
            metadata[_free_key("unfit", metadata)] = unfit
        if len(made.get("stdout", "")) > _SUMMARY and "output_summary" not in made:
            cut = made["stdout"][:_SUMMARY] + "\u2026"
            made["output_summary"] = self.redactor.redact_text(cut)
        if self._call_type is not None and made["step"] == self.step > 0:
            made.setdefault(
                "call_type", _fit("call_type", self._call_type, self.redactor.redact_text)
            )
        made.setdefault("timestamp", _timestamp(self._clock()))
        return {key: made[key] for key in KEYS if key in made}

    def _begin(self) -> None:
        """Continue the steps of the file, or give it a header."""
        begun = False
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            _lock_briefly(self._fd)  # or two that start at once would both write a header
            begun = _holds_entries(self._fd, self.path)
            self.step = _find_last_step(self._fd)
        if self._header and not begun:
            self._append(render_line(HEADER))
        _unlock(self._fd)

    def _append(self, line: bytes) -> None:
        """One write for the whole line: what others append cannot come between."""
        status = os.fstat(self._fd)
        if status.st_nlink == 0:
            self._bring_back()
            status = os.fstat(self._fd)
        size = status.st_size
        if size not in (0, self._end) and os.pread(self._fd, 1, size - 1) != b"\n":
            # Someone was killed in the middle of a line. It stays, on a line of its own.
            line = b"\n" + line
        _write(self._fd, line)
        self._end = size + len(line)
        if self._fsync and stat.S_ISREG(status.st_mode):
            os.fsync(self._fd)

    def _bring_back(self) -> None:
        """The file was deleted, by the agent as a rule: put it back with all that was in it.

        Another writer may have done so. What it put there is continued, and so is any trajectory.
        """
        fd = _open_again(self._place)
        try:
            _lock_briefly(fd)  # or two that bring it back at once would both copy
            if not _holds_entries(fd, self._place):
                _copy(self._fd, fd)
            _unlock(fd)
        except BaseException:
            os.close(fd)  # the deleted one stays open, for the next call to try again
            raise
        deleted, self._fd, self._end = self._fd, fd, -1
        os.close(deleted)


def render_line(fields: Mapping[str, Any]) -> bytes:
    """One line of the file: a JSON object, and a line end that is the only one in it."""
    text = json.dumps(fields, ensure_ascii=False, allow_nan=False)
    for raw, escaped in _LINE_BREAKS.items():
        text = text.replace(raw, escaped)
    return (text + "\n").encode()


def _timestamp(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds // 1_000_000, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:03}Z"


# Values: whatever a harness has at hand, as JSON


def _fit(key: str, value: Any, redact: Callable[[str], str]) -> Any:
    """A value as its key takes it; None where it cannot be."""
    if key in _NUMBERS:
        whole = _whole(value)
        return None if whole is not None and whole < 0 and key == "step" else whole
    if key in _OBJECTS:
        made = _to_json(value, redact)
        return made if isinstance(made, dict) else None
    if key == "media":
        names = value if isinstance(value, (list, tuple)) else [value]
        return [_text(name, redact) for name in names]
    # The format's own words are no secrets, even where a secret is such a word.
    if key in ("role", "call_type") and isinstance(value, str) and value in _OWN_WORDS:
        return str.__str__(value)
    return _text(value, redact)


def _whole(value: Any) -> int | None:
    """The nearest whole number, if the value is a number and has one of 64 bits."""
    if isinstance(value, float) and math.isfinite(value):
        value = round(value)
    number = _ask(operator.index, value)
    return int(number) if number is not None and -(1 << 63) <= number < 1 << 63 else None


def _text(value: Any, redact: Callable[[str], str]) -> str:
    if isinstance(value, (Mapping, list, tuple)):
        value = json.dumps(_to_json(value, redact), ensure_ascii=False)
    return redact(_describe(value))


def _to_json(value: Any, redact: Callable[[str], str], parents: tuple[int, ...] = ()) -> Any:
    """A value as JSON can hold it, without secrets; parents are the containers it stands in."""
    if isinstance(value, str):
        return redact(_clean(value))
    if isinstance(value, _CONTAINERS) and id(value) not in parents and len(parents) < _DEEPEST:
        return _container(value, redact, (*parents, id(value)))
    if hasattr(type(value), "__index__") and not isinstance(value, bool):
        value = _ask(operator.index, value, value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and abs(value) < _LARGEST_NUMBER:
        text = json.dumps(value)
        redacted = redact(text)
        return value if redacted == text else redacted
    return redact(_describe(value))


def _container(value: Any, redact: Callable[[str], str], parents: tuple[int, ...]) -> Any:
    is_object = isinstance(value, Mapping)
    items = _ask(
        lambda found: [(k, v) for k, v in found.items()] if is_object else list(found), value
    )
    if items is None:
        return redact(_describe(value))
    if not is_object:
        made = [_to_json(item, redact, parents) for item in items]
        # A set has no order; the same set should give the same line.
        return made if isinstance(value, (list, tuple)) else sorted(made, key=repr)
    named: dict[str, Any] = {}
    for key, item in items:
        named[_free_key(redact(_describe(key)), named)] = _to_json(item, redact, parents)
    return named


def _free_key(key: str, taken: Mapping[str, Any]) -> str:
    """The key, numbered where it would hide another: 1 and "1" are one key in JSON."""
    free, number = key, len(taken)
    while free in taken:
        number += 1
        free = f"{key}#{number}"
    return free


def _describe(value: Any) -> str:
    """Text of anything, with nothing in it that UTF-8 cannot hold."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "backslashreplace")
    if value is None or isinstance(value, (bool, float)):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) >= _LARGEST_NUMBER:
        return hex(value)  # Python may refuse to write that many decimal digits
    return _clean(_ask(str, value, f"<{type(value).__name__} that cannot be shown>"))


def _clean(text: str) -> str:
    return str.__str__(text).encode("utf-8", "backslashreplace").decode("utf-8")


def _ask(question: Callable[[Any], Any], value: Any, otherwise: Any = None) -> Any:
    """What a value answers. It may be an object of any kind, and broken in any way."""
    try:
        return question(value)
    except Exception:  # noqa: BLE001 - a value must not stop the harness
        return otherwise


# Secrets: the forms in which they turn up


def _find_forms(secret: str) -> set[str]:
    """Every form of a secret. Most have few: letters and digits look the same in most encodings."""
    bare = _trim(secret)
    # Encoded with its blanks, it holds what it is encoded without them.
    return {secret, bare, *_escape(bare), *_encode_for_urls(bare), *_encode_base64(bare)}


def _trim(secret: str) -> str:
    """A secret without the line end it has in a file, unless too little is left to look for."""
    bare = secret.strip()
    return bare if len(bare) >= _SHORTEST_SECRET else secret


def _escape(text: str) -> Iterator[str]:
    for is_ascii in (True, False):
        once = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        yield once
        for is_ascii_again in (True, False):
            yield json.dumps(once, ensure_ascii=is_ascii_again)[1:-1]
    yield repr(text)[1:-1]
    # Quotes are escaped only where the whole text has both kinds, which the rest of it may bring.
    yield repr("'\"" + text)[4:-1]


def _encode_for_urls(text: str) -> Iterator[str]:
    kept = "!'()*"  # by encodeURIComponent
    for encoded in (quote(text), quote(text, ""), quote(text, kept), quote_plus(text)):
        yield encoded
        yield re.sub("%..", lambda escape: escape[0].lower(), encoded)


def _encode_base64(text: str) -> Iterator[str]:
    data = text.encode()
    if len(data) < _SHORTEST_ENCODED_SECRET:
        return
    for before in range(3):
        # Only the characters that are the secret's alone, whatever stands before and after it.
        encoded = base64.b64encode(bytes(before) + data).decode()
        encoded = encoded[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]
        yield encoded
        yield encoded.replace("+", "-").replace("/", "_")


def _occurrences(form: str, text: str) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + 1)


# Files


def _open(path: str, extra_flags: int = 0) -> int:
    # Non-blocking, because opening a pipe that nobody reads would wait for ever.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
    fd = os.open(path, flags | extra_flags, 0o666)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISCHR(mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file; expected one", path)
    return fd


def _open_again(path: str) -> int:
    """Open what replaced a deleted file, or make it. A link there leads to others' files."""
    try:
        fd = _open(path, os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        found = "deleted, and a symbolic link put in its place; expected a file, or none"
        raise OSError(errno.ELOOP, found, path) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "deleted, and a device put in its place; expected none", path)
    return fd


def _copy(source: int, target: int) -> None:
    """Append all of one file to another, or nothing of it."""
    before = os.fstat(target).st_size
    try:
        if before and os.pread(target, 1, before - 1) != b"\n":
            _write(target, b"\n")
        at = 0
        while data := os.pread(source, _TAIL, at):
            _write(target, data)
            at += len(data)
    except BaseException:
        os.ftruncate(target, before)  # or the next call would take the part for the whole
        raise


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _lock_briefly(fd: int) -> None:
    """Wait a second for the lock and go on without it: nothing is lost by a second header."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return  # a file system without locks
        else:
            return


def _unlock(fd: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)


def _holds_entries(fd: int, path: str) -> bool:
    """Whether a whole line is there. Torn pieces of lines and zero bytes count as nothing."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        lines = iter(lambda: file.readline(_LONGEST_LINE), b"")
        for number, line in enumerate(lines, 1):
            found = _parse(line)
            if {"version", "format"} <= found.keys() or {"step", "role"} <= found.keys():
                return True
            rest = line.strip(_NOTHING)
            is_torn = rest.startswith(b'{"') and not found
            if (rest and not is_torn) or len(line) == _LONGEST_LINE:
                raise ValueError(
                    f"{path}: line {number} is not of a trajectory; expected a header or an entry."
                    " Nothing was written; name another file"
                )
    return False


def _find_last_step(fd: int) -> int:
    """The highest step near the end of the file."""
    size, length = os.fstat(fd).st_size, _TAIL
    while True:
        start = max(size - length, 0)
        # What stands before the first line end may be half a line. The last line may lack its end.
        lines = os.pread(fd, length, start).split(b"\n")[1 if start else 0 :]
        found = (_parse(line).get("step") for line in lines)
        steps = [step for step in found if type(step) is int and 0 <= step < 1 << 63]
        if steps or start == 0 or length >= _LONGEST_LINE:
            return max(steps, default=0)
        length *= 4


def _parse(line: bytes) -> dict[str, Any]:
    """The object on a line, zero bytes around it left out; {} where there is none."""
    try:
        found = json.loads(line.strip(_NOTHING))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
