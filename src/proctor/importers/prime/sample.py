"""One sample as values, of either shape.

What one shape keeps in `info` the other has on top; `info` may be the JSON text of an object.

What a record rests on must be right, or the sample is refused: that it is an object, its id, its
reward. Of all else, what cannot be read is left out and noted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Literal

from proctor.errors import PrimeError
from proctor.importers.prime.reading import find_number, find_object, find_text, whole_text
from proctor.sentence import shown
from proctor.trajectory.entry import Object

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
