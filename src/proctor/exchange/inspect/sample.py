"""One sample of a log as values, its reward, and its messages as a trace.

The fields are those of Inspect's own `EvalSample` that a record is made of. What cannot be used,
such as tokens that contradict, is left out and noted. Notes are stored in the record, so their
texts stay as they are.

The reward is the value of one scorer, converted to a number as Inspect's metrics do, except that a
value which is none of these is not scored, where Inspect counts it as 0:

    a number, true, false                  the number, 1, 0
    "C", "P", "I", "N"                     1, 0.5, 0, 0: correct, partial, incorrect, no answer
    "yes", "true", "no", "false"           1, 1, 0, 0, in upper or lower case
    the text of a number                   the number
    an object                              its `reward`, or its only value
    NaN, infinite numbers, other texts,
    lists, other objects                   not scored

What `proctor export` notes about entries, under `proctor` in a sample's metadata, gives back the
entries that the messages were made from.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from proctor.errors import InspectError, RecordError
from proctor.record.cost import Usage
from proctor.record.fields import check_json
from proctor.record.reasons import ReasonCode
from proctor.sentence import shown
from proctor.times import parse_utc
from proctor.traces.entry import KEYS, Entry, Object
from proctor.traces.turn import ToolCall, ToolResult, Turn, turns_to_entries

PROCTOR: Final = "proctor"
"""Key of the metadata of an evaluation and of a sample that `proctor export` wrote."""
ENTRIES: Final = "entries"
"""Key of what `proctor export` notes about the entries."""
PLACE: Final = "at"
"""Key of the index of an entry in the trace that was exported."""
_GRADES: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS: Final = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
# Characters of an error's message that a record keeps; the sample has all.
_LONGEST_ERROR: Final = 4000
_TIME_LIMITS: Final = frozenset({"time", "working"})
_UNFIT: Final = (
    *(msgspec.ValidationError, ValueError, TypeError, KeyError),
    *(OverflowError, RecursionError),
)


class Scorer(msgspec.Struct, frozen=True):
    """A scorer that a task declares."""

    name: str


class Headline(msgspec.Struct, frozen=True):
    """The metric that a task names first."""

    scorer: str | None = None


class Sandbox(msgspec.Struct, frozen=True):
    """Where tools ran."""

    type: str


class Revision(msgspec.Struct, frozen=True):
    """The commit that the task was at."""

    commit: str | None = None


class EvalSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What was run."""

    eval_id: str
    run_id: str = ""
    created: datetime
    task: str
    task_version: int | str = 0
    model: str = ""
    solver: str | None = None
    solver_args: Any = None
    task_args: Any = None
    model_args: Any = None
    model_roles: Any = None
    model_generate_config: Any = None
    config: Object = {}
    packages: dict[str, str] = {}
    revision: Revision | None = None
    sandbox: Sandbox | None = None
    scorers: list[Scorer] | None = None
    headline_metric: Headline | None = None
    metadata: Object | None = None

    @property
    def own_experiment(self) -> str | None:
        """The experiment that `proctor export` noted."""
        own = (self.metadata or {}).get(PROCTOR)
        found = own.get("experiment_id") if isinstance(own, dict) else None
        return found if isinstance(found, str) and found else None

    @property
    def default_scorer(self) -> str | None:
        """The scorer of the headline metric, else the first that the task declares."""
        if self.headline_metric is not None and self.headline_metric.scorer:
            return self.headline_metric.scorer
        return self.scorers[0].name if self.scorers else None


class Part(msgspec.Struct, frozen=True):
    """A part of a message."""

    type: str
    text: str | None = None
    reasoning: str | None = None


class Call(msgspec.Struct, frozen=True):
    """A tool call."""

    id: str
    function: str
    arguments: Object
    parse_error: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of any role."""

    id: str | None = None
    role: str = "assistant"
    content: str | list[Part] = ""
    metadata: Object | None = None
    model: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | list[str] | None = None
    function: str | None = None
    error: Object | None = None

    @property
    def parts(self) -> list[Part]:
        """The content as parts."""
        return [Part("text", self.content)] if isinstance(self.content, str) else self.content


class ModelUsage(msgspec.Struct, frozen=True):
    """The tokens of one model."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_cache_read: int | None = None
    input_tokens_cache_write: int | None = None
    total_cost: float | None = None


class Choice(msgspec.Struct, frozen=True):
    """An answer of a model."""

    message: Message


class Output(msgspec.Struct, frozen=True):
    """What a model answered."""

    choices: list[Choice] = []
    usage: ModelUsage | None = None


class Event(msgspec.Struct, frozen=True):
    """Something that happened: only calls of models and tools are looked at."""

    event: str
    id: str | None = None
    timestamp: str | None = None
    completed: str | None = None
    model: str | None = None
    # An event of another kind has another output.
    output: Any = None


class Score(msgspec.Struct, frozen=True):
    """The value of a scorer."""

    value: Any


class Failure(msgspec.Struct, frozen=True):
    """An error that ended a sample or an evaluation."""

    message: str


class Limit(msgspec.Struct, frozen=True):
    """A limit that ended a sample."""

    type: str
    limit: float | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a task's sample: one epoch of it."""

    id: int | str
    epoch: Annotated[int, msgspec.Meta(ge=1)]
    input: str | list[Message] = ""
    target: Any = ""
    messages: list[Message] = []
    answer: str = ""
    """The last words, with attachments in place; not in the log itself."""
    scores: dict[str, Score] | None = None
    metadata: Object = {}
    events: list[Event] = []
    model_usage: dict[str, Object] = {}
    sandbox: Sandbox | None = None
    started_at: str | None = None
    completed_at: str | None = None
    total_time: float | None = None
    working_time: float | None = None
    uuid: str | None = None
    invalidation: Any = None
    error: Failure | None = None
    error_retries: list[Any] | None = None
    limit: Limit | None = None

    @property
    def own(self) -> Object:
        """What `proctor export` wrote next to the sample; empty in logs of others."""
        found = self.metadata.get(PROCTOR)
        return found if isinstance(found, dict) else {}

    @property
    def values(self) -> Object:
        """The values of all scorers, by name."""
        return {name: score.value for name, score in (self.scores or {}).items()}

    @property
    def failure(self) -> str | None:
        """The message of the error that ended it, at most as long as a record keeps it."""
        if self.error is None:
            return None
        text = self.error.message
        return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}…"

    def usages(self, notes: list[str]) -> Iterator[tuple[str, ModelUsage, Usage | None]]:
        """Model, usage as in the log, and tokens, for each model that the sample used."""
        for model, given in self.model_usage.items():
            try:
                used = msgspec.convert(given, ModelUsage)
            except msgspec.ValidationError:
                used = ModelUsage()
            tokens = read_usage(used)
            if tokens is None:
                notes.append(f"model_usage of {model} is {shown(given)}; unusable")
            yield model, used, tokens

    def times(self) -> tuple[datetime | None, datetime | None]:
        """When it began and ended, by its own fields, else by its events."""
        seen = [
            time
            for event in self.events
            for text in (event.timestamp, event.completed)
            if (time := parse_utc(text or "")) is not None
        ]
        began = parse_utc(self.started_at or "") or min(seen, default=None)
        return began, parse_utc(self.completed_at or "") or max(seen, default=None) or began

    def seconds(self, notes: list[str]) -> float:
        """How long it took; 0 with a note if it is unknown."""
        if self.total_time is not None and self.total_time >= 0:
            return self.total_time
        began, ended = self.times()
        if began is not None and ended is not None and ended > began:
            return (ended - began).total_seconds()
        notes.append("total_seconds is 0: the sample does not say how long it took")
        return 0.0


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


def find_reward(sample: Sample, default: str | None, asked: str | None) -> Reward:
    """The value of the scorer that was asked for, else of the default, else of the first.

    Raises:
        InspectError: the sample has scores, but none by the scorer that was asked for.
    """
    values = sample.values
    if not values:
        return _unscored(sample, "the sample has no score")
    scorer, key = asked or default or next(iter(values)), None
    if scorer not in values and asked is not None and ":" in asked:
        scorer, _, key = asked.rpartition(":")
    elif scorer not in values and asked is None:
        # A task may declare a scorer by the name of its package, and a sample without.
        scorer = scorer.rpartition("/")[2]
    if scorer not in values:
        why = f"no score by {scorer}; there are scores by {', '.join(values)}"
        if asked is not None:
            # The name may be misspelt, and what is sealed as not scored stays so.
            raise InspectError(f"--scorer {asked}: {why}")
        return _unscored(sample, why)
    value = values[scorer]
    if isinstance(value, dict):
        if key is None:
            key = "reward" if "reward" in value else next(iter(value)) if len(value) == 1 else None
        if key is None or key not in value:
            return _unscored(
                sample,
                f"the value of {scorer} has the parts {', '.join(value)}; pass --scorer "
                f"{scorer}:PART to choose one",
                ReasonCode.HARBOR_REWARD_PARSE_ERROR,
            )
        scorer, value = f"{scorer}:{key}", value[key]
    elif key is not None:
        return _unscored(sample, f"the value of {scorer} has no part {key}: {shown(value)}")
    number = convert_value(value)
    if number is None:
        why = f"the value of {scorer} is {shown(value)}, which is not a number"
        return _unscored(sample, why, ReasonCode.HARBOR_REWARD_PARSE_ERROR)
    return Reward(number, scorer)


def _unscored(sample: Sample, why: str, code: ReasonCode | None = None) -> Reward:
    """No reward; an error or a limit is a better reason than what follows from it."""
    if sample.error is not None:
        code = ReasonCode.HARBOR_TRIAL_FAILED
    elif sample.limit is not None and sample.limit.type in _TIME_LIMITS:
        code = ReasonCode.HARBOR_AGENT_TIMEOUT_ERROR
    return Reward(None, None, f"not scored: {why}", code or ReasonCode.HARBOR_REWARD_MISSING)


def convert_value(value: object) -> float | None:
    """Convert a scorer's value to a number; None if it is not one."""
    if (
        isinstance(value, str)
        and (found := _GRADES.get(value, _WORDS.get(value.lower()))) is not None
    ):
        return found
    if not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_usage(used: ModelUsage) -> Usage | None:
    """The tokens of a usage, with cached input in the input; None if the numbers contradict.

    Inspect's input tokens do, by version and provider, contain cached ones or not; the total says
    which it is.
    """
    new, output, total = used.input_tokens, used.output_tokens, used.total_tokens
    if new is None or output is None:
        return None
    read, write = used.input_tokens_cache_read, used.input_tokens_cache_write
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


def keep_storable(value: Any, name: str, notes: list[str]) -> Any:
    """Return a value that a record can store; None, with a note, if it cannot."""
    try:
        check_json(value)
    except ValueError as error:
        notes.append(f"{name} {error}; only the log has it")
        return None
    return value


def read_entries(sample: Sample, notes: list[str]) -> list[Entry]:
    """The trace of a sample; empty if it has no messages."""
    messages = sample.messages
    # A trial that was exported without a trace has none, and says so.
    if not messages and ENTRIES not in sample.own:
        given = sample.input
        messages = [Message(role="user", content=given)] if isinstance(given, str) else given
    answers: dict[str, tuple[Event, Output]] = {}
    tools: dict[str, Event] = {}
    for event in sample.events:
        if event.event == "model" and isinstance(event.output, dict):
            output = msgspec.convert(event.output, Output)
            if output.choices and (name := output.choices[0].message.id) is not None:
                answers[name] = event, output
        elif event.event == "tool" and event.id is not None:
            tools[event.id] = event
    turns = [
        _make_result(number, message, tools)
        if message.role == "tool"
        else _make_turn(number, message, answers)
        for number, message in enumerate(messages, 1)
    ]
    entries = list(turns_to_entries(turns))
    noted = sample.own.get(ENTRIES)
    return entries if noted is None else restore_entries(entries, noted, notes)


_NOTHING = Event(""), Output()


def _make_turn(number: int, message: Message, answers: dict[str, tuple[Event, Output]]) -> Turn:
    rest = _find_rest(message)
    thoughts = [part.reasoning for part in message.parts if part.reasoning is not None]
    event, output = answers.get(message.id or "", _NOTHING)
    if message.role == "assistant" and (model := message.model or event.model):
        rest["model_name"] = model
    usage: Object | None = None
    if output.usage is not None and (used := read_usage(output.usage)) is not None:
        usage = {"input_tokens": used.input, "output_tokens": used.output}
        if used.cache_read is not None:
            usage["cache_read_tokens"] = used.cache_read
    return Turn(
        line=number,
        role=message.role,
        text=_join_text(message),
        thinking="\n".join(thoughts) if thoughts else None,
        calls=tuple(
            ToolCall(
                name=call.function,
                arguments=call.arguments,
                call_id=call.id,
                rest={"parse_error": call.parse_error} if call.parse_error else {},
            )
            for call in message.tool_calls or ()
        ),
        timestamp=event.completed or event.timestamp,
        usage=usage,
        rest=rest,
    )


def _make_result(number: int, message: Message, tools: dict[str, Event]) -> Turn:
    rest, failed = _find_rest(message), message.error is not None
    call_id = message.tool_call_id if isinstance(message.tool_call_id, str) else None
    result = ToolResult(
        text=_join_text(message),
        name=message.function,
        call_id=call_id,
        is_error=True if failed else None,
        rest=rest | {"error": message.error} if failed else rest,
    )
    event = tools.get(call_id or "", _NOTHING[0])
    timestamp = event.completed or event.timestamp
    return Turn(line=number, role="tool", results=(result,), timestamp=timestamp)


def _join_text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if part.text is not None)


def _find_rest(message: Message) -> Object:
    """What a turn has no field for: metadata, and the types of parts that are no text."""
    others = [part.type for part in message.parts if part.text is None and part.reasoning is None]
    rest: Object = {"omitted": others} if others else {}
    return rest | {"metadata": message.metadata} if message.metadata else rest


def note_entries(
    entries: Sequence[Entry], places: Sequence[int], written: Sequence[Entry]
) -> list[Object]:
    """Note for each entry that was written how the original differs, and where it was."""
    found: list[Object] = []
    for place, other in zip(places, written, strict=True):
        before, after = msgspec.to_builtins(entries[place]), msgspec.to_builtins(other)
        differing = {key: before.get(key) for key in KEYS if before.get(key) != after.get(key)}
        found.append({PLACE: place, **differing})
    return found


def restore_entries(entries: list[Entry], noted: Any, notes: list[str]) -> list[Entry]:
    """The entries as they were before they were exported; unchanged if the notes do not fit."""
    try:
        check_json(noted)
        placed: list[tuple[int, Entry]] = []
        for entry, each in zip(entries, msgspec.convert(noted, list[Object]), strict=True):
            merged = msgspec.to_builtins(entry) | each
            place = int(merged.pop(PLACE))
            known = {key: value for key, value in merged.items() if value is not None}
            placed.append((place, msgspec.convert(known, Entry)))
        return [entry for _, entry in sorted(placed, key=lambda pair: pair[0])]
    except _UNFIT:
        notes.append("the noted entries do not fit the messages; the trace is that of the messages")
        return entries
