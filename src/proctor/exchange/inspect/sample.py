"""One sample of a log as values: its ids, scores, tokens, times, error and limit.

What a record depends on must be valid, or the sample is refused: that it is an object, its id and
its epoch. Anything else that cannot be read is left out and noted. Notes are stored in the record,
so their texts stay as they are.

The reward is the value of one scorer, converted to a number as Inspect's metrics do, except that a
value which is none of these is not scored, where Inspect counts it as 0:

    a number, true, false                  the number, 1, 0
    "C", "P", "I", "N"                     1, 0.5, 0, 0: correct, partial, incorrect, no answer
    "yes", "true", "no", "false"           1, 1, 0, 0, in upper or lower case
    the text of a number                   the number
    an object                              its `reward`, or its only value
    NaN, infinite numbers, other texts,
    lists, other objects                   not scored
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from proctor.errors import InspectError, RecordError
from proctor.exchange.foreign_values import find_number, find_text, whole_text
from proctor.exchange.inspect.log import InspectLog
from proctor.record.cost import Usage
from proctor.record.fields import check_json
from proctor.record.reasons import ReasonCode
from proctor.sentence import shown
from proctor.times import parse_utc
from proctor.traces.entry import Object

PROCTOR: Final = "proctor"
"""Key of the metadata of an evaluation and of a sample that `proctor export` wrote."""
_GRADES: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS: Final = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
# A larger number is an error, and too large for what adds them up.
_MOST_TOKENS: Final = 10**15
# Characters of an error's message that a record keeps; the sample has all.
_LONGEST_ERROR: Final = 4000
_COUNTS: Final = (
    *("input_tokens", "output_tokens", "total_tokens"),
    *("input_tokens_cache_read", "input_tokens_cache_write"),
)
_TIME_LIMITS: Final = frozenset({"time", "working"})


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward of a sample, or why it has none."""

    value: float | None
    scorer: str | None = None
    """Whose value it is; with the key, if the value is an object."""
    why: str | None = None
    """Why it is not scored."""
    code: ReasonCode | None = None
    """The same as a reason code."""


def convert_value(value: object) -> float | None:
    """Convert a scorer's value to a number; None if it is not one."""
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return find_number(value)
    if value in _GRADES:
        return _GRADES[value]
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def find_object(value: object) -> Object:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def keep_storable(value: Any, name: str, notes: list[str]) -> Any:
    """Return a value that a record can store; None, with a note, if it cannot."""
    try:
        check_json(value)
    except ValueError as error:
        notes.append(f"{name} {error}; only the log has it")
        return None
    return value


def parse_time(value: object) -> datetime | None:
    """Parse an ISO time; one without an offset is UTC."""
    return parse_utc(value.strip()) if isinstance(value, str) else None


def find_default_scorer(log: InspectLog) -> str | None:
    """The scorer of the headline metric, else the first that the task declares."""
    declared = find_text(find_object(log.eval.get("headline_metric")).get("scorer"))
    scorers = log.eval.get("scorers")
    first = scorers[0] if isinstance(scorers, list) and scorers else None
    return declared or find_text(find_object(first).get("name"))


def read_usage(given: Object) -> Usage | None:
    """The tokens of a usage, with cached input in the input; None if the numbers contradict.

    Inspect's input tokens do, by version and provider, contain cached ones or not; the total says
    which it is.
    """
    counts = [given[key] for key in _COUNTS if given.get(key) is not None]
    if any(type(count) is not int or not 0 <= count < _MOST_TOKENS for count in counts):
        return None
    new, output, total, read, write = (given.get(key) for key in _COUNTS)
    if new is None or output is None:
        return None
    cached = (read or 0) + (write or 0)
    total = new + output if total is None else total
    if total == new + cached + output:
        new += cached
    elif total != new + output:
        return None
    try:
        return Usage(input=new, output=output, cache_read=read, cache_write=write)
    except RecordError:
        return None


@dataclass(frozen=True)
class Sample:
    """One run of a task's sample: one epoch of it."""

    value: Object
    """The complete sample."""
    notes: list[str] = field(default_factory=list)
    """What could not be read."""

    @cached_property
    def id(self) -> str:
        """Its id, which may be a number in the log.

        Raises:
            InspectError: it is neither text nor a whole number.
        """
        given = self.value.get("id")
        if type(given) is int:
            return str(given)
        if not isinstance(given, str) or not given.strip():
            raise InspectError(f"id is {shown(given)}; expected text or a whole number")
        return whole_text(given)

    @cached_property
    def epoch(self) -> int:
        """Its number among the runs of the sample, from 1.

        Raises:
            InspectError: it is not such a number.
        """
        given = self.value.get("epoch")
        if type(given) is not int or not 1 <= given < _MOST_TOKENS:
            raise InspectError(f"epoch is {shown(given)}; expected a whole number, 1 or more")
        return given

    @cached_property
    def own(self) -> Object:
        """What `proctor export` wrote next to the sample; empty in logs of others."""
        return find_object(find_object(self.value.get("metadata")).get(PROCTOR))

    @cached_property
    def scores(self) -> dict[str, Any]:
        """The values of all scorers, by name."""
        given = self.value.get("scores")
        if given is None and isinstance(single := self.value.get("score"), dict):
            # Logs of early versions have one scorer without a name.
            given = {"score": single}
        if given is not None and not isinstance(given, dict):
            self.notes.append(f"scores is {shown(given)}; expected an object")
        found = find_object(given)
        return {
            whole_text(name): find_object(score).get("value")
            for name, score in found.items()
            if isinstance(score, dict) and "value" in score
        }

    @cached_property
    def breakdown(self) -> Object | None:
        """The values of all scorers as a record stores them: NaN becomes the text nan."""
        shown_values = {name: _storable(value) for name, value in self.scores.items()}
        return keep_storable(shown_values, "scores", self.notes) if shown_values else None

    def reward(self, default: str | None, asked: str | None) -> Reward:
        """The value of the scorer that was asked for, else of the default, else of the first.

        Raises:
            InspectError: the sample has scores, but none by the scorer that was asked for.
        """
        if not self.scores:
            return self._unscored("the sample has no score")
        scorer = asked or default or next(iter(self.scores))
        key = None
        if scorer not in self.scores and asked is not None and ":" in asked:
            scorer, _, key = asked.rpartition(":")
        elif scorer not in self.scores and asked is None:
            # A task may declare a scorer by the name of its package, and a sample without.
            scorer = scorer.rpartition("/")[2]
        if scorer not in self.scores:
            why = f"no score by {scorer}; there are scores by {', '.join(self.scores)}"
            if asked is not None:
                # The name may be misspelt, and what is sealed as not scored stays so.
                raise InspectError(f"--scorer {asked}: {why}")
            return self._unscored(why)
        value = self.scores[scorer]
        if isinstance(value, dict):
            return self._reward_in(scorer, value, key)
        if key is not None:
            return self._unscored(f"the value of {scorer} has no part {key}: {shown(value)}")
        return self._converted(scorer, value)

    def _reward_in(self, scorer: str, value: Object, key: str | None) -> Reward:
        if key is None:
            key = "reward" if "reward" in value else next(iter(value)) if len(value) == 1 else None
        if key is None or key not in value:
            parts = ", ".join(map(str, value))
            return self._unscored(
                f"the value of {scorer} has the parts {whole_text(parts)}; pass --scorer "
                f"{scorer}:PART to choose one",
                ReasonCode.HARBOR_REWARD_PARSE_ERROR,
            )
        return self._converted(f"{scorer}:{whole_text(key)}", value[key])

    def _converted(self, scorer: str, value: object) -> Reward:
        number = convert_value(value)
        if number is None:
            why = f"the value of {scorer} is {shown(value)}, which is not a number"
            return self._unscored(why, ReasonCode.HARBOR_REWARD_PARSE_ERROR)
        return Reward(number, scorer)

    def _unscored(self, why: str, code: ReasonCode | None = None) -> Reward:
        """No reward; an error or a limit is a better reason than what follows from it."""
        if self.error is not None:
            code = ReasonCode.HARBOR_TRIAL_FAILED
        elif self.limit is not None and self.limit[0] in _TIME_LIMITS:
            code = ReasonCode.HARBOR_AGENT_TIMEOUT_ERROR
        return Reward(None, None, f"not scored: {why}", code or ReasonCode.HARBOR_REWARD_MISSING)

    @cached_property
    def error(self) -> str | None:
        """The message of the error that ended the sample."""
        given = self.value.get("error")
        if given is None:
            return None
        message = find_object(given).get("message") if isinstance(given, dict) else given
        text = whole_text(message if isinstance(message, str) and message else shown(given))
        return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}…"

    @cached_property
    def limit(self) -> tuple[str, float | None] | None:
        """The kind of the limit that ended the sample, and its value."""
        given = self.value.get("limit")
        if not isinstance(given, dict):
            return None
        kind = find_text(given.get("type"))
        return (whole_text(kind or shown(given)), find_number(given.get("limit")))

    @cached_property
    def events(self) -> list[Object]:
        """What happened, in order; as far as it can be read."""
        given = self.value.get("events")
        return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []

    def usages(self) -> Iterator[tuple[str, Object, Usage | None]]:
        """Model, usage as in the log, and tokens, for each model that the sample used."""
        for model, given in find_object(self.value.get("model_usage")).items():
            used = find_object(given)
            tokens = read_usage(used)
            if tokens is None:
                self.notes.append(f"model_usage of {whole_text(model)} is {shown(given)}; unusable")
            yield whole_text(model), used, tokens

    def times(self) -> tuple[datetime | None, datetime | None]:
        """When it began and ended, by its own fields, else by its events."""
        stated = [parse_time(self.value.get(key)) for key in ("started_at", "completed_at")]
        seen = [
            time
            for event in self.events
            for key in ("timestamp", "completed")
            if (time := parse_time(event.get(key))) is not None
        ]
        began, ended = stated[0] or min(seen, default=None), stated[1] or max(seen, default=None)
        return began, ended or began

    def seconds(self) -> float:
        """How long it took; 0 with a note if it is unknown."""
        total = find_number(self.value.get("total_time"))
        if total is not None and total >= 0:
            return total
        began, ended = self.times()
        if began is not None and ended is not None and ended > began:
            return (ended - began).total_seconds()
        self.notes.append("total_seconds is 0: the sample does not say how long it took")
        return 0.0


def _storable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {str(key): _storable(each) for key, each in value.items()}
    return [_storable(each) for each in value] if isinstance(value, list) else value
