"""Convert a trial and its traces to OpenTelemetry spans. Does not read or write files.

    invoke_agent       the trial: agent, task, usage, score
      chat             each turn of the model: its new inputs and its output
      execute_tool     each tool call: arguments, result, failure

A chat span has only the messages since the previous turn. The conventions would repeat the whole
history in each, which grows with the square of the trace. Ids are derived from digests, so that the
same trial gives the same spans. Beyond the conventions, a message has the index of its entry in the
trace, its step and its time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from proctor.digest import sha256_hex
from proctor.exchange import otel_model as carried
from proctor.exchange.chats import (
    Answer,
    Call,
    Chat,
    Chats,
    Placed,
    find_model,
    find_thought,
    find_tokens,
    group_chats,
)
from proctor.exchange.exporting import (
    ReadTrace,
    Scalar,
    SelectedTrial,
    as_real,
    find_at,
    find_scalar,
    pick,
)
from proctor.exchange.otel_model import (
    CLIENT,
    ERROR,
    INTERNAL,
    Clock,
    Event,
    Span,
    Status,
    find_moment,
    tool_times,
    write_attributes,
)
from proctor.traces.entry import Object

_CALLS_TOOLS = "tool_call"
_NO_REASON = "unknown"


def render_messages(messages: Iterable[Object]) -> str:
    """Render messages as the text of an attribute."""
    return msgspec.json.encode(list(messages)).decode()


def text_part(text: str) -> Object:
    """A text part of a message."""
    return {"type": "text", "content": text}


def make_inputs(inputs: Iterable[Placed | Answer], part: str = "") -> list[Object]:
    """The model's inputs since its previous turn; `part` if no span says which part it is."""
    said = {"part": part} if part else {}
    return [
        (_make_answer(each) if isinstance(each, Answer) else _make_message(each)) | said
        for each in inputs
    ]


def make_output(chat: Chat) -> Object:
    """The model's output; the finish reason is known only if it called tools."""
    parts: list[Object] = []
    if chat.said is not None:
        thought = find_thought(chat.said.entry)
        if thought is not None:
            parts.append({"type": "reasoning", "content": thought})
        if chat.said.entry.content is not None:
            parts.append(text_part(chat.said.entry.content))
    parts += [
        {
            "type": "tool_call",
            "id": call.call_id,
            "name": call.call.entry.tool_name or "",
            "arguments": call.call.entry.arguments,
        }
        for call in chat.calls
    ]
    reason = _CALLS_TOOLS if chat.calls else _NO_REASON
    return {"role": "assistant", "parts": parts, "finish_reason": reason}


def _make_message(placed: Placed) -> Object:
    entry = placed.entry
    parts = [] if entry.content is None else [text_part(entry.content)]
    return {"role": entry.role, "parts": parts, **_place(placed)}


def _make_answer(answer: Answer) -> Object:
    entry = answer.result.entry
    part: Object = {
        "type": "tool_call_response",
        "id": answer.call_id,
        "response": entry.stdout if entry.stdout is not None else entry.output_summary or "",
    }
    return {"role": "tool", "parts": [part], **_place(answer.result)}


def _place(placed: Placed) -> Object:
    time = placed.entry.timestamp
    said: Object = {"entry": placed.at, "step": placed.entry.step}
    return said if time is None else {**said, "timestamp": time}


# The conventions' value for an unknown provider.
_OTHER = "_OTHER"
_FAILED = "agent_failed"
# Hex digits of a span id.
_ID = 16


@dataclass(frozen=True, slots=True)
class _Trial:
    """The properties that all spans of a trial share."""

    digest: str
    status: str
    """Status of the sealed trial."""
    trace_id: str
    root_id: str
    shared: dict[str, Scalar | None]
    model: str

    def span_id(self, *parts: object) -> str:
        return sha256_hex("/".join([self.trace_id, *map(str, parts)]).encode())[:_ID]


class TrialSpans:
    """The spans of a trial, generated lazily: a trace may have a million turns."""

    def __init__(self, trial: SelectedTrial, traces: Sequence[ReadTrace]) -> None:
        self._document = trial.document()
        self._head = _make_head(trial)
        self._bounds = _find_bounds(trial, traces)
        self._clock = Clock(self._bounds[0])
        self._parts = [(trace.part, group_chats(trace.entries)) for trace in traces]

    def __iter__(self) -> Iterator[Span]:
        start, end = self._bounds
        for part, chats in self._parts:
            for span in _spans_of(self._head, part, chats, self._clock):
                end = max(end, int(span.end_time_unix_nano))
                yield span
        # The root span comes last: only now is the end of the trial known.
        yield _make_root(self._head, self._document, self._parts, (start, end))

    @property
    def timeless(self) -> int:
        """How many of the entries converted so far had no time."""
        return self._clock.unknown


def _make_head(trial: SelectedTrial) -> _Trial:
    digest, agent = trial.row.record, trial.record.agent
    provider, slash, _ = agent.model.partition("/")
    shared: dict[str, Scalar | None] = {
        "gen_ai.provider.name": provider if slash and provider else _OTHER,
        "gen_ai.conversation.id": trial.name,
        carried.AGENT: agent.adapter,
        carried.MODEL: agent.model,
    }
    trace_id = digest[:32]
    return _Trial(
        digest, trial.row.status, trace_id, sha256_hex(trace_id.encode())[:_ID], shared, agent.model
    )


def _find_bounds(trial: SelectedTrial, traces: Sequence[ReadTrace]) -> tuple[int, int]:
    """Start and end of the trial: from its record, extended by its trace."""
    end = find_moment(trial.record.timestamp.isoformat()) or 0
    took = round(min(trial.record.timing.total_seconds, end / 1e9) * 1_000_000) * 1000
    moments = [find_moment(entry.timestamp) for trace in traces for entry in trace.entries]
    known = [moment for moment in moments if moment is not None]
    return min([max(end - took, 0), *known]), max([end, *known])


def _make_root(
    head: _Trial, document: Object, parts: Sequence[tuple[str, Chats]], bounds: tuple[int, int]
) -> Span:
    start, end = bounds
    instruction = find_scalar(document, "record.inputs.instruction")
    prompt = find_scalar(document, "record.inputs.system_prompt")
    last = next((chats.turns[-1] for _, chats in reversed(parts) if chats.turns), None)
    rest = [message for part, chats in parts for message in make_inputs(chats.rest, part)]
    asked = {"role": "user", "parts": [text_part(str(instruction))]}
    attributes: dict[str, Scalar | None] = {
        "gen_ai.operation.name": "invoke_agent",
        **head.shared,
        **pick(document, carried.ATTRIBUTES),
        carried.DIGEST: head.digest,
        carried.STATUS: head.status,
        carried.SYSTEM: None if prompt is None else render_messages([text_part(str(prompt))]),
        carried.INPUT: None if instruction is None else render_messages([asked]),
        carried.OUTPUT: None if last is None else render_messages([make_output(last)]),
        carried.UNANSWERED: render_messages(rest) if rest else None,
    }
    failed = _find_failure(document)
    if failed is not None:
        # Text before the colon is usually an exception's name; other text is too long for a type.
        kind = failed.partition(":")[0]
        attributes["error.type"] = kind if kind.isidentifier() else _FAILED
    return Span(
        trace_id=head.trace_id,
        span_id=head.root_id,
        name=f"invoke_agent {head.shared[carried.AGENT]}",
        kind=INTERNAL,
        start_time_unix_nano=str(start),
        end_time_unix_nano=str(end),
        attributes=write_attributes(attributes),
        events=list(_evaluations(document, end)),
        status=None if failed is None else Status(code=ERROR, message=failed),
    )


def _find_failure(document: Object) -> str | None:
    """Why a trial counts as failed: its agent reported it, or there is no score."""
    if find_scalar(document, "record.outputs.agent_output.status") == "failed":
        said = find_scalar(document, "record.outputs.agent_output.error_message")
        return str(said or _FAILED)
    code = find_scalar(document, "reason_code")
    return None if code is None else str(code)


def _evaluations(document: Object, at: int) -> Iterator[Event]:
    reward = as_real(find_at(document, "record.evaluation.reward"))
    if reward is None:
        why = find_scalar(document, "reason_code")
        yield _evaluation(
            at, {carried.LABEL: carried.NOT_SCORED, carried.EXPLANATION: why}, carried.REWARD
        )
    else:
        yield _evaluation(at, {carried.SCORE: reward}, carried.REWARD)
    breakdown = find_at(document, "record.evaluation.breakdown")
    for key, value in breakdown.items() if isinstance(breakdown, dict) else ():
        if key != carried.REWARD and (score := as_real(value)) is not None:
            yield _evaluation(at, {carried.SCORE: score}, key)


def _evaluation(at: int, attributes: dict[str, Scalar | None], name: str) -> Event:
    return Event(
        time_unix_nano=str(at),
        name=carried.EVALUATION,
        attributes=write_attributes({carried.METRIC: name, **attributes}),
    )


def _spans_of(head: _Trial, part: str, chats: Chats, clock: Clock) -> Iterator[Span]:
    for chat in chats.turns:
        before = clock.now
        for each in chat.inputs:
            placed = each.result if isinstance(each, Answer) else each
            before = clock.advance(placed.entry.timestamp)
        yield _make_chat(head, part, chat, (before, clock.advance(chat.first.entry.timestamp)))
        for call in chat.calls:
            yield _make_tool(head, part, call, clock)


def _make_chat(head: _Trial, part: str, chat: Chat, times: tuple[int, int]) -> Span:
    start, end = times
    known = {"model": find_model(chat.first.entry), **find_tokens(chat.first.entry)._asdict()}
    attributes: dict[str, Scalar | None] = {
        "gen_ai.operation.name": "chat",
        **head.shared,
        **{name: known[key] for key, name in carried.OF_CHAT.items()},
        carried.INPUT: render_messages(make_inputs(chat.inputs)),
        carried.OUTPUT: render_messages([make_output(chat)]),
        carried.STEP: chat.step,
        carried.PART: part or None,
        carried.ENTRY: None if chat.said is None else chat.said.at,
    }
    return Span(
        trace_id=head.trace_id,
        span_id=head.span_id(part, chat.first.at, "chat"),
        parent_span_id=head.root_id,
        name=f"chat {head.model}",
        kind=CLIENT,
        start_time_unix_nano=str(min(start, end)),
        end_time_unix_nano=str(end),
        attributes=write_attributes(attributes),
    )


def _make_tool(head: _Trial, part: str, call: Call, clock: Clock) -> Span:
    entry = call.call.entry
    result = None if call.result is None else call.result.entry
    answered = None if result is None else find_moment(result.timestamp)
    start, end = tool_times(
        clock.advance(entry.timestamp), answered, None if result is None else result.duration_ms
    )
    attributes: dict[str, Scalar | None] = {
        "gen_ai.operation.name": "execute_tool",
        carried.AGENT: head.shared[carried.AGENT],
        carried.TOOL: entry.tool_name,
        "gen_ai.tool.type": "function",
        carried.CALL_ID: call.call_id,
        carried.ARGUMENTS: _render(entry.arguments),
        carried.COMMAND: _find_command(entry.command, entry.arguments),
        carried.STEP: entry.step,
        carried.PART: part or None,
        carried.ENTRY: call.call.at,
        "error.type": call.failed,
    }
    if call.result is not None and result is not None:
        attributes[carried.RESULT] = call.result.at
        attributes[carried.RESULT_TIME] = result.timestamp if answered != end else None
        attributes |= {name: getattr(result, key) for key, name in carried.OF_RESULT.items()}
    return Span(
        trace_id=head.trace_id,
        span_id=head.span_id(part, call.call.at, "tool"),
        parent_span_id=head.root_id,
        name=f"execute_tool {entry.tool_name or ''}".rstrip(),
        kind=INTERNAL,
        start_time_unix_nano=str(start),
        end_time_unix_nano=str(end),
        attributes=write_attributes(attributes),
        status=_make_status(call.failed),
    )


def _make_status(failed: str | None) -> Status | None:
    if failed is None:
        return None
    return Status(code=ERROR, message=f"exit code {failed}" if failed.isdigit() else failed)


def _render(arguments: Object | None) -> str | None:
    return None if arguments is None else msgspec.json.encode(arguments).decode()


def _find_command(command: str | None, arguments: Object | None) -> str | None:
    return None if (arguments or {}).get("command") == command else command
