"""One sample of either shape as values: its fields, its messages, its calls, names made of its ids.

What one shape keeps in `info` the other has at the top; `info` may be the JSON text of an object.
What a record depends on must be right, or the sample is refused: that it is an object, its id, its
reward. Anything else that cannot be read is left out and noted. nan, infinite numbers and lone
surrogates pass the JSON reader, so that they refuse one sample and not a whole page.

A message becomes a row of conversation.jsonl with role and content, and tool_calls and tool_call_id
where there are any; the rest stays in the raw sample. Calls may be objects or the JSON text of
objects.

A trial is called `prime-EVALUATION-SAMPLE`. An id that is a plain name is used as it is; any other
becomes a slug with a short digest of the id, so that two ids with one slug stay apart.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from proctor.digest import sha256_hex
from proctor.errors import PrimeError
from proctor.sentence import count_of, shown
from proctor.traces.entry import Object

_LONGEST_INT = 400
"""Digits; no number of Prime's has so many, and Python takes long over far more."""


def parse_json(data: bytes | str, where: str) -> Any:
    """What a JSON text holds.

    Raises:
        PrimeError: it is no JSON, or nested beyond all reason.
    """
    try:
        return json.loads(data, parse_int=_parse_int)
    except RecursionError as error:
        raise PrimeError(f"{where}: nested too deeply to be read") from error
    except ValueError as error:
        raise PrimeError(f"{where}: no JSON: {error}") from error


def _parse_int(text: str) -> int | float:
    return int(text) if len(text) <= _LONGEST_INT else math.inf


def find_object(value: object) -> Object | None:
    """An object, given as one or as the JSON text of one; None where it is neither."""
    if isinstance(value, str):
        try:
            value = parse_json(value, "")
        except PrimeError:
            return None
    return value if isinstance(value, dict) else None


def find_number(value: object) -> float | None:
    """A finite number; None where it is anything else, true among that."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def find_text(*values: object) -> str | None:
    """The first of some values that is text and not blank."""
    return next((each for each in values if isinstance(each, str) and each.strip()), None)


def whole_text(text: str) -> str:
    """Text without halves of characters, which no file of text can hold."""
    return text.encode("utf-8", "replace").decode()


CONVERSATION: Final = "conversation.jsonl"
SAMPLE: Final = "prime_sample.json"
OUTPUT: Final = "output.md"
"""What a submitted file is called that has no name, or none that can be used."""

_RESERVED: Final = frozenset({CONVERSATION, SAMPLE, "trajectory.jsonl", "trajectory.json"})
"""Ours, and those that would be taken for the trial's trace."""
_STRANGE = re.compile(r"[^A-Za-z0-9_.-]+")
_DIGEST: Final = 12
_LONGEST: Final = 80
"""Characters of one id in a name, so that two of them and what is around fit into 200."""
_LONGEST_PART: Final = 200
_MOST_PARTS: Final = 8


def slug(text: str) -> str:
    """The text with every run of other characters as one `-`."""
    return _STRANGE.sub("-", text.strip()).strip("-") or "unknown"


def plain_name(text: str) -> str:
    """The text itself where it is its own slug and short, else the slug and a short digest."""
    name = slug(text)
    if name == text and len(name) <= _LONGEST:
        return name
    digest = sha256_hex(text.encode("utf-8", "surrogatepass"))[:_DIGEST]
    return f"{name[: _LONGEST - _DIGEST - 1]}-{digest}"


def trial_name(evaluation: str, sample: str) -> str:
    """The id of a sample's trial."""
    return f"prime-{plain_name(evaluation)}-{plain_name(sample)}"


def default_experiment(evaluation: str) -> str:
    """The experiment of an evaluation for which none is named."""
    return f"prime-eval-{plain_name(evaluation)}"


def submitted_name(path: object) -> tuple[str, bool]:
    """The name that a submitted file gets, and whether it is the one that it was given.

    A path that leads out of the trial, or is one of ours, is kept under its last part, and where
    that cannot be either, as output.md.
    """
    if path is None or path == "":
        return OUTPUT, True
    if not isinstance(path, str) or "\0" in path:
        return OUTPUT, False
    asked = PurePosixPath(path)
    if 0 < len(asked.parts) <= _MOST_PARTS and all(map(_is_plain, asked.parts)):
        return str(asked), True
    return (asked.name if _is_plain(asked.name) else OUTPUT), False


def _is_plain(part: str) -> bool:
    is_short = 0 < len(part.encode("utf-8", "replace")) <= _LONGEST_PART
    # A leading _ is how records' own directories begin; a backslash parts names elsewhere.
    is_free = part.lower() not in _RESERVED and not part.startswith(("_", ".."))
    return is_short and is_free and part.isprintable() and not set(part) & {"/", "\\"}


SUBMIT: Final = "submit_answer"


@dataclass(frozen=True, slots=True)
class Submitted:
    """An answer that the agent handed in."""

    name: str
    """Among the trial's evidence."""
    data: bytes
    asked: str | None
    """The path that it was handed in under, where that could not be its name."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said, as rows."""

    prompt: list[Object]
    completion: list[Object]

    @property
    def rows(self) -> list[Object]:
        """All of it, in its order."""
        return [*self.prompt, *self.completion]


def read_conversation(sample: Object, notes: list[str]) -> Conversation:
    """The messages of a sample; what cannot be one is noted."""
    return Conversation(
        _make_rows(sample.get("prompt"), "prompt", notes),
        _make_rows(sample.get("completion"), "completion", notes),
    )


def _make_rows(messages: object, key: str, notes: list[str]) -> list[Object]:
    if isinstance(messages, str):
        # How a model without roles is asked, and how it answers.
        role = "user" if key == "prompt" else "assistant"
        return [{"role": role, "content": messages}] if messages else []
    if not isinstance(messages, list):
        if messages is not None:
            notes.append(f"{key} is {shown(messages)}; expected a list of messages")
        return []
    rows = [_make_row(each, notes) for each in messages if isinstance(each, dict)]
    if len(rows) < len(messages):
        said = count_of(len(messages) - len(rows), "message")
        notes.append(f"{said} of {key} could not be read; the raw sample has all")
    return rows


def _make_row(message: Object, notes: list[str]) -> Object:
    role = message.get("role")
    row: Object = {
        "role": "" if role is None else role if isinstance(role, str) else shown(role),
        "content": message.get("content") or "",
    }
    if calls := _find_calls(message.get("tool_calls"), notes):
        row["tool_calls"] = calls
    if message.get("tool_call_id"):
        row["tool_call_id"] = message["tool_call_id"]
    return row


def _find_calls(value: object, notes: list[str]) -> list[Object]:
    if isinstance(value, str) and value.strip():
        try:
            value = parse_json(value, "tool_calls")
        except PrimeError:
            notes.append("tool_calls are text that is no JSON; they are only in the raw sample")
            return []
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        return []
    calls = [call for each in value if (call := find_object(each)) is not None]
    if len(calls) < len(value):
        said = count_of(len(value) - len(calls), "tool call")
        notes.append(f"{said} could not be read; the raw sample has all")
    return calls


def render_rows(rows: list[Object]) -> bytes:
    """The bytes of conversation.jsonl."""
    return b"".join(json.dumps(row, sort_keys=True).encode() + b"\n" for row in rows)


def count_calls(rows: list[Object]) -> Object:
    """How often each tool was called."""
    counts = Counter(whole_text(name) for name, _ in _calls(rows))
    return {
        "total": counts.total(),
        SUBMIT: counts[SUBMIT],
        "by_tool": dict(sorted(counts.items())),
    }


def find_submitted(rows: list[Object]) -> Submitted | None:
    """The first answer that was handed in with anything in it."""
    for name, arguments in _calls(rows):
        content = arguments.get("content") if name == SUBMIT else None
        if isinstance(content, str) and content:
            path = arguments.get("path")
            kept, is_own = submitted_name(path)
            return Submitted(
                kept, content.encode("utf-8", "replace"), None if is_own else shown(path)
            )
    return None


def _calls(rows: list[Object]) -> Iterator[tuple[str, Object]]:
    for row in rows:
        for call in row.get("tool_calls", ()):
            function: Any = call.get("function")
            named = function if isinstance(function, dict) else call
            yield find_text(named.get("name")) or "", find_object(named.get("arguments")) or {}


def find_instruction(prompt: list[Object]) -> str | None:
    """What the first message of a user says that says anything."""
    for row in prompt:
        if row["role"] == "user" and (said := find_text(_words(row["content"]))):
            return said
    return None


def _words(content: object) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [each.get("text") if isinstance(each, dict) else each for each in content]
    return "\n".join(each for each in texts if isinstance(each, str))


type Ending = Literal["completed", "partial", "failed"]

UNDATED: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of a trial for which none is given anywhere."""
_REWARD: Final = "aec_bench_reward"


@dataclass(frozen=True)
class Sample:
    """One rollout of a model at an example."""

    value: Object
    """All that Prime gave."""
    notes: list[str] = field(default_factory=list)
    """What of it could not be read."""

    @cached_property
    def info(self) -> Object:
        """What the environment says about the example."""
        given = self.value.get("info")
        found = find_object(given)
        if found is None and given not in (None, ""):
            self.notes.append(f"info is {shown(given)}; expected an object")
        return found or {}

    def either(self, key: str) -> Any:
        """What stands under a key on top, else in info."""
        found = self.value.get(key)
        return self.info.get(key) if found is None else found

    @cached_property
    def metrics(self) -> Object:
        """What the rubric measured, by name."""
        return find_object(self.either("metrics")) or {}

    @cached_property
    def error(self) -> str | None:
        """Why the rollout failed."""
        error = self.either("error")
        if isinstance(error, dict):
            said = find_text(error.get("error_chain_str"), error.get("error"))
            return whole_text(said or shown(error)) if error else None
        return whole_text(error if isinstance(error, str) else shown(error)) if error else None

    @property
    def ending(self) -> Ending:
        """How the rollout ended: an error goes before all, and a reward says nothing about it."""
        if self.error is not None:
            return "failed"
        if self.either("is_truncated") is True:
            return "partial"
        return "completed" if self.either("is_completed") is True else "partial"

    def reward(self) -> tuple[float | None, str | None]:
        """The reward and the key that it stood under; null where the sample was not scored.

        Raises:
            PrimeError: it is no finite number.
        """
        for key, value in self._rewards():
            if value is None:
                return None, key
            number = find_number(value)
            if number is None:
                raise PrimeError(f"{key} is {shown(value)}; expected a finite number or null")
            return number, key
        return None, None

    def _rewards(self) -> Iterator[tuple[str, Any]]:
        for key in ("reward", _REWARD, "score"):
            if key in self.value:
                yield key, self.value[key]
        if _REWARD in self.metrics:
            yield f"metrics.{_REWARD}", self.metrics[_REWARD]

    def tokens(self, key: str) -> int | None:
        """A count of tokens; null where it is not known."""
        usage = find_object(self.either("token_usage")) or {}
        given = usage.get(key)
        if given is None:
            return None
        count = _parse_number(given)
        if count is None or count != int(count):
            self.notes.append(f"token_usage.{key} is {shown(given)}; expected a count")
            return None
        return int(count)

    def seconds(self) -> "Seconds":
        """How long it took."""
        timing = find_object(self.either("timing")) or {}
        total = self._first_seconds(
            ("total_time", self.either("total_time"), 1),
            ("timing.total", timing.get("total"), 1),
            ("timing.total_ms", timing.get("total_ms"), 1000),
            ("latency_ms", self.either("latency_ms"), 1000),
        )
        return Seconds(total, self._phase(timing, "generation"), self._phase(timing, "scoring"))

    def _phase(self, timing: Object, name: str) -> float | None:
        span = timing.get(name)
        length = span.get("duration") if isinstance(span, dict) else span
        return self._first_seconds(
            (f"timing.{name}", length, 1), (f"timing.{name}_ms", timing.get(f"{name}_ms"), 1000)
        )

    def _first_seconds(self, *named: tuple[str, object, int]) -> float | None:
        for where, given, a_second in named:
            if given is None:
                continue
            amount = _parse_number(given)
            if amount is not None:
                return amount / a_second
            self.notes.append(f"{where} is {shown(given)}; expected a time, 0 or more")
        return None

    def timestamp(self, evaluation_created_at: object) -> datetime:
        """When it was made, else when the evaluation was, else a time that is plainly none."""
        given = self.either("created_at") or self.value.get("createdAt")
        if given is not None:
            time = _parse_time(given)
            if time is not None:
                return time
            self.notes.append(f"created_at is {shown(given)}; expected a date and a time")
        time = _parse_time(evaluation_created_at)
        if time is not None:
            self.notes.append("timestamp is the evaluation's: the sample has no created_at")
            return time
        self.notes.append("timestamp is no time: neither sample nor evaluation has a created_at")
        return UNDATED


@dataclass(frozen=True, slots=True)
class Seconds:
    """Durations; null where they are not known."""

    total: float | None
    generation: float | None
    scoring: float | None


def _parse_number(value: object) -> float | None:
    """A finite number, 0 or more, or the text of one."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    number = find_number(value)
    return number if number is not None and number >= 0 else None


def _parse_time(value: object) -> datetime | None:
    """A time as ISO text; one without an offset is Prime's, which are UTC."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value.strip())
        time = time.replace(tzinfo=UTC) if time.utcoffset() is None else time
        return time if time.utcoffset() == UTC.utcoffset(None) else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
