"""Export sealed trials as OpenTelemetry spans, with the GenAI conventions, as OTLP JSON.

One line per trial, each a complete ExportTraceServiceRequest, as collectors read it from files;
nothing is sent. A trial without a trace has one span: agent, task and score. A trial that was not
scored has an evaluation without a value, never 0.

The loss report is made by reading the written bytes back, not from the original values: whatever
was dropped or changed on the way is missing there and is reported as a loss.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from proctor import __version__
from proctor.exchange import otel_model as carried
from proctor.exchange.chats import flatten_entry
from proctor.exchange.exporting import (
    UNWRITABLE,
    Exported,
    ReadTrace,
    Report,
    SelectedTrial,
    Selection,
    check_absent,
    list_withheld,
    new_file,
    put_at,
    read_traces,
    read_trials,
    report_path,
    report_unwritable,
    report_withheld,
)
from proctor.exchange.otel_model import (
    Attributes,
    Request,
    Resource,
    ResourceSpans,
    Scope,
    ScopeSpans,
    Span,
    find_moment,
    read_attributes,
    render_moment,
    write_attributes,
)
from proctor.exchange.otel_spans import TrialSpans
from proctor.traces.entry import Entry, Object
from proctor.traces.loss import Loss, list_losses

type ReadEntry = tuple[str, int, Object]
"""An entry read back: its part, its index in the trace, and its fields."""

_PARTS = {"text": "content", "reasoning": "thought"}
_DECODER = msgspec.json.Decoder(Span)


def read_span(data: bytes) -> Span:
    """Decode a written span."""
    return _DECODER.decode(data)


def read_entries(span: Span) -> Iterator[ReadEntry]:
    """Read the entries in a span; a result's own span comes first and has most of its fields."""
    said = read_attributes(span.attributes)
    part = str(said.get(carried.PART, ""))
    match said["gen_ai.operation.name"]:
        case "chat":
            yield from ((part, at, entry) for at, entry in _read_chat(span, said))
        case "execute_tool":
            yield from ((part, at, entry) for at, entry in _read_tool(span, said))
        case _:
            for message in _parse(said.get(carried.UNANSWERED)):
                yield message.get("part", ""), *_read_message(message)


def is_root(span: Span) -> bool:
    """Whether it is the span of the trial itself."""
    return not span.parent_span_id


def flatten(entry: Entry) -> Object:
    """Flatten an entry for comparison, with its time in one format."""
    flat = flatten_entry(entry)
    return flat | _spell(flat.get("timestamp"))


def _spell(time: object) -> Object:
    moment = find_moment(time) if isinstance(time, str) else None
    return {} if moment is None else {"timestamp": render_moment(moment)}


def read_document(root: Span) -> Object:
    """Read what a trial's root span contains of the sealed trial."""
    said = read_attributes(root.attributes)
    document: Object = {}
    for path, name in carried.ATTRIBUTES.items():
        if name in said:
            put_at(document, path, said[name])
    for message in _parse(said.get(carried.INPUT)):
        put_at(document, "record.inputs.instruction", message["parts"][0]["content"])
    for part in _parse(said.get(carried.SYSTEM)):
        put_at(document, "record.inputs.system_prompt", part["content"])
    breakdown: Object = {}
    for event in root.events:
        result = read_attributes(event.attributes)
        if carried.SCORE in result:
            breakdown[str(result[carried.METRIC])] = result[carried.SCORE]
    put_at(document, "record.evaluation.breakdown", breakdown)
    put_at(document, "record.evaluation.reward", breakdown.get(carried.REWARD))
    return document


def _read_chat(span: Span, said: Attributes) -> Iterator[tuple[int, Object]]:
    yield from map(_read_message, _parse(said.get(carried.INPUT)))
    if carried.ENTRY not in said:
        return
    entry: Object = {
        "role": "assistant",
        "step": said[carried.STEP],
        "timestamp": render_moment(int(span.end_time_unix_nano)),
    }
    entry |= {key: said.get(name) for key, name in carried.OF_CHAT.items()}
    (message,) = _parse(said[carried.OUTPUT])
    for part in message["parts"]:
        if part["type"] in _PARTS:
            entry[_PARTS[part["type"]]] = part["content"]
    yield int(said[carried.ENTRY]), entry


def _read_message(message: Object) -> tuple[int, Object]:
    entry: Object = {"step": message["step"], **_spell(message.get("timestamp"))}
    entry["role"] = message["role"]
    for part in message["parts"]:
        if part["type"] == "tool_call_response":
            entry["role"] = "tool_result"
            entry |= {"stdout": part["response"], "call_id": part["id"]}
        else:
            entry["content"] = part["content"]
    return message["entry"], entry


def _read_tool(span: Span, said: Attributes) -> Iterator[tuple[int, Object]]:
    both: Object = {
        "step": said[carried.STEP],
        "tool_name": said.get(carried.TOOL),
        "call_id": said[carried.CALL_ID],
    }
    call = {
        **both,
        "role": "tool_call",
        "timestamp": render_moment(int(span.start_time_unix_nano)),
    }
    if carried.ARGUMENTS in said:
        call["arguments"] = msgspec.json.decode(str(said[carried.ARGUMENTS]))
        call["command"] = call["arguments"].get("command")
    if carried.COMMAND in said:
        call["command"] = said[carried.COMMAND]
    yield int(said[carried.ENTRY]), call
    if carried.RESULT not in said:
        return
    result = {**both, "role": "tool_result"}
    result |= {key: said[name] for key, name in carried.OF_RESULT.items() if name in said}
    ended = render_moment(int(span.end_time_unix_nano))
    time = said.get(carried.RESULT_TIME)
    result["timestamp"] = ended if time is None else time
    yield int(said[carried.RESULT]), result | _spell(time)


def _parse(text: object) -> list[Object]:
    return [] if text is None else msgspec.json.decode(str(text), type=list[Object])


_SERVICE = "proctor"


def export_trials(selection: Selection, target: Path) -> Exported:
    """Write one line per trial to a new file."""
    beside = report_path(target)
    check_absent(beside)
    withheld = list_withheld(selection.ledger)
    with new_file(target) as file, new_file(beside) as losses:
        report = Report(losses)
        for trial in read_trials(selection, report):
            report_withheld(trial, withheld, report)
            begin = file.tell()
            try:
                report.lose(trial.name, write_trial(file, trial, read_traces(trial)))
                report.trials += 1
            except UNWRITABLE as error:
                report_unwritable(trial, error, report)
                file.truncate(file.seek(begin))
    return report.exported(target, beside)


def write_trial(
    file: BinaryIO, trial: SelectedTrial, traces: Sequence[ReadTrace]
) -> Iterator[Loss]:
    """Write the line of a trial, and yield its losses: each span is read back as it is written."""
    spans = TrialSpans(trial, traces)
    comparison = _Comparison(trial, traces)
    before, between, after = _render_frame()
    file.write(before)
    for number, span in enumerate(spans):
        data = msgspec.json.encode(span)
        file.write(between + data if number else data)
        yield from comparison.find_lost(read_span(data))
    file.write(after)
    yield from comparison.find_missing()
    if spans.timeless:
        why = "they have no time of their own: they are placed in order at the last known time"
        yield Loss("entries", f"{spans.timeless}", why)


def _render_frame() -> tuple[bytes, bytes, bytes]:
    """The text before, between and after the spans of a line."""
    source = write_attributes({"service.name": _SERVICE, "service.version": __version__})
    ours = ScopeSpans(scope=Scope(_SERVICE, __version__), spans=[])
    resource = ResourceSpans(resource=Resource(source), scope_spans=[ours])
    before, bracket, after = msgspec.json.encode(Request(resource_spans=[resource])).rpartition(
        b"[]"
    )
    return before + bracket[:1], b",", bracket[1:] + after + b"\n"


class _Comparison:
    """Compares what was written of a trial with what is sealed."""

    def __init__(self, trial: SelectedTrial, traces: Sequence[ReadTrace]) -> None:
        self._trial = trial
        self._traces = {trace.part: trace for trace in traces}
        self._seen: set[tuple[str, int]] = set()

    def find_lost(self, span: Span) -> Iterator[Loss]:
        """Yield what a span lacks of what it represents."""
        if is_root(span):
            yield from list_losses(self._trial.document(), read_document(span))
        for part, place, entry in read_entries(span):
            if (part, place) not in self._seen:
                self._seen.add((part, place))
                yield from self._compare(part, place, entry)

    def find_missing(self) -> Iterator[Loss]:
        """Yield what no span represents."""
        for part, trace in self._traces.items():
            yield from trace.losses
            for place in range(len(trace.entries)):
                if (part, place) not in self._seen:
                    yield from self._compare(part, place, {})

    def _compare(self, part: str, place: int, kept: Object) -> Iterator[Loss]:
        at = f"entries of {part}" if part else "entries"
        entry = flatten(self._traces[part].entries[place])
        return list_losses(entry, kept, f"{at}[{place}]")
