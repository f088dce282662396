"""One sample, of either format, as values: its fields, messages, calls, and names from its ids.

One format keeps in `info` what the other has at the top level; `info` may be the JSON text of an
object. What a record depends on must be valid, or the sample is refused: that it is an object, its
id, its reward. Anything else that cannot be read is left out and noted. nan, infinite numbers and
lone surrogates pass the JSON parser, so that they refuse one sample instead of a whole page.

A message becomes a row of conversation.jsonl with role and content, and tool_calls and tool_call_id
if present; the rest is kept only in the raw sample. Calls may be objects or the JSON text of
objects. Notes are stored in the record, so their texts stay as they are.

A trial is called `prime-EVALUATION-SAMPLE`. An id that is a valid name is used unchanged; any other
becomes a slug with a short digest of the id, so that ids with equal slugs stay distinct.
"""

import json
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
from proctor.exchange.foreign_values import find_number, find_text, parse_int, whole_text
from proctor.sentence import count_of, shown
from proctor.times import parse_utc
from proctor.traces.entry import Object


def parse_json(data: bytes | str, where: str) -> Any:
    """Parse JSON text.

    Raises:
        PrimeError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(data, parse_int=parse_int)
    except RecursionError as error:
        raise PrimeError(f"{where}: nested too deeply to parse") from error
    except ValueError as error:
        raise PrimeError(f"{where}: not JSON: {error}") from error


def find_object(value: object) -> Object | None:
    """Return an object, given as such or as JSON text; None for anything else."""
    if isinstance(value, str):
        try:
            value = parse_json(value, "")
        except PrimeError:
            return None
    return value if isinstance(value, dict) else None


CONVERSATION: Final = "conversation.jsonl"
SAMPLE: Final = "prime_sample.json"
OUTPUT: Final = "output.md"
"""Name of a submitted file without a name, or with an invalid one."""

# Our own files, and names that would be taken for the trial's trace.
_RESERVED: Final = frozenset({CONVERSATION, SAMPLE, "trajectory.jsonl", "trajectory.json"})
_STRANGE = re.compile(r"[^A-Za-z0-9_.-]+")
_DIGEST: Final = 12
# Characters of one id in a name, so that two ids and the fixed parts fit into 200.
_LONGEST: Final = 80
_LONGEST_PART: Final = 200
_MOST_PARTS: Final = 8


def slug(text: str) -> str:
    """Replace every run of other characters with one `-`."""
    return _STRANGE.sub("-", text.strip()).strip("-") or "unknown"


def plain_name(text: str) -> str:
    """Return a short name that is its own slug unchanged, else a slug with a short digest."""
    name = slug(text)
    if name == text and len(name) <= _LONGEST:
        return name
    digest = sha256_hex(text.encode("utf-8", "surrogatepass"))[:_DIGEST]
    return f"{name[: _LONGEST - _DIGEST - 1]}-{digest}"


def trial_name(evaluation: str, sample: str) -> str:
    """The id of a sample's trial."""
    return f"prime-{plain_name(evaluation)}-{plain_name(sample)}"


def default_experiment(evaluation: str) -> str:
    """The default experiment of an evaluation."""
    return f"prime-eval-{plain_name(evaluation)}"


def submitted_name(path: object) -> tuple[str, bool]:
    """The name for a submitted file, and whether it is the requested one.

    For a path that leads out of the trial, or is reserved, the last part is used, and if that is
    not valid either, output.md.
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
    # Directories of records begin with _, and Windows separates names with a backslash.
    is_free = part.lower() not in _RESERVED and not part.startswith(("_", ".."))
    return is_short and is_free and part.isprintable() and not set(part) & {"/", "\\"}


SUBMIT: Final = "submit_answer"


@dataclass(frozen=True, slots=True)
class Submitted:
    """An answer that the agent submitted."""

    name: str
    """Its name in the trial's evidence."""
    data: bytes
    asked: str | None
    """The requested path, if it could not be used as the name."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages, as rows."""

    prompt: list[Object]
    completion: list[Object]

    @property
    def rows(self) -> list[Object]:
        """All messages, in order."""
        return [*self.prompt, *self.completion]


def read_conversation(sample: Object, notes: list[str]) -> Conversation:
    """Read the messages of a sample; invalid ones are noted."""
    return Conversation(
        _make_rows(sample.get("prompt"), "prompt", notes),
        _make_rows(sample.get("completion"), "completion", notes),
    )


def _make_rows(messages: object, key: str, notes: list[str]) -> list[Object]:
    if isinstance(messages, str):
        # Prompt and completion of a model without chat roles.
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
    """Render conversation.jsonl."""
    return b"".join(json.dumps(row, sort_keys=True).encode() + b"\n" for row in rows)


def count_calls(rows: list[Object]) -> Object:
    """Count the calls of each tool."""
    counts = Counter(whole_text(name) for name, _ in _calls(rows))
    return {
        "total": counts.total(),
        SUBMIT: counts[SUBMIT],
        "by_tool": dict(sorted(counts.items())),
    }


def find_submitted(rows: list[Object]) -> Submitted | None:
    """The first submitted answer that is not empty."""
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
    """The first text of a user message."""
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
"""Time of a trial for which no time is recorded."""
_REWARD: Final = "aec_bench_reward"


@dataclass(frozen=True)
class Sample:
    """One rollout of a model on an example."""

    value: Object
    """The complete sample."""
    notes: list[str] = field(default_factory=list)
    """What could not be read."""

    @cached_property
    def info(self) -> Object:
        """The environment's information about the example."""
        given = self.value.get("info")
        found = find_object(given)
        if found is None and given not in (None, ""):
            self.notes.append(f"info is {shown(given)}; expected an object")
        return found or {}

    def either(self, key: str) -> Any:
        """The value of a key at the top level, else in info."""
        found = self.value.get(key)
        return self.info.get(key) if found is None else found

    @cached_property
    def metrics(self) -> Object:
        """The rubric's metrics, by name."""
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
        """How the rollout ended: an error takes precedence; the reward is irrelevant."""
        if self.error is not None:
            return "failed"
        if self.either("is_truncated") is True:
            return "partial"
        return "completed" if self.either("is_completed") is True else "partial"

    def reward(self) -> tuple[float | None, str | None]:
        """The reward and its key; None if the sample was not scored.

        Raises:
            PrimeError: it is not a finite number.
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
        """A token count; None if unknown."""
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
        """Durations of the rollout."""
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
        """When it was created, else when the evaluation was, else `UNDATED`."""
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
    """Durations; None if unknown."""

    total: float | None
    generation: float | None
    scoring: float | None


def _parse_number(value: object) -> float | None:
    """Parse a finite number of 0 or more, also from text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    number = find_number(value)
    return number if number is not None and number >= 0 else None


def _parse_time(value: object) -> datetime | None:
    """Parse an ISO time; Prime's times without an offset are UTC."""
    return parse_utc(value.strip()) if isinstance(value, str) else None
