"""Read conversation.jsonl: every dialect to the same turns, strictly or leniently.

    for item in read_turns(path):                  strict: the first problem is a TraceError
    for item in read_turns(path, salvage=True):    turns, and diagnostics where they were noticed

Memory does not grow with the file. The dialect of a row is recognised by:

    canonical      it has an `event`
    openai         its role is tool or function, or it has `tool_calls` or a `function_call`, or its
                   content is a list with a part that only OpenAI has
    anthropic      its content is a list that starts with a block of some `type`
    pydantic-ai    its `kind` is request or response, and it has `parts`

A row without any of these could be of any dialect. A row of another dialect in between is read like
the others; the conversation's dialect is that of the first row with a mark, or plain if there is
none.

What is met                            strict     salvage
an empty file                          no turns   no turns
a blank line, CR before the line end   nothing    nothing
U+2028, U+2029, U+0085 in a string     text       text
a JSON array                           its items are rows of this line, in both
a number, string, true or null         problem    skipped      not-an-object
what is not JSON, zero bytes           problem    skipped      garbage
the last line cut off                  problem    skipped      torn-line
the last line whole, without its end   noted      noted        no-line-end
nested too deep                        problem    skipped      too-deep
a line above 128 MiB                   problem    skipped      line-too-long
a byte order mark                      problem    left out     byte-order-mark
bytes that are not UTF-8               problem    U+FFFD       invalid-utf-8
a raw control character in a string    problem    kept         control-character
NaN, Infinity, 1e999                   problem    kept         not-a-json-number
a key twice in one object              problem    last kept    duplicate-key
half a surrogate pair, escaped         U+FFFD and noted        half-character
the file cut while it is read          problem    the rest     file-shrank
the file growing while it is read      noted      noted        file-grew

What a row means is never a problem: the format has no schema. Only results are completed: a result
without a name gets that of the call with the same id, if it is among the last few thousand calls.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.sentence import shown
from proctor.traces.dialects import RESULT_ROLES, parse_canonical, parse_message, parse_openai
from proctor.traces.entry import Object
from proctor.traces.lines import LINE_LIMIT, Decoding, OpenTrace, Oversized
from proctor.traces.pydantic_ai import KINDS, parse_pydantic_ai
from proctor.traces.turn import Turn

type Dialect = Literal["canonical", "openai", "anthropic", "pydantic-ai", "plain"]
"""plain is a conversation without a mark: its rows have a role and a text."""

_OPENAI_PARTS: Final = ("image_url", "input_audio", "input_text", "output_text", "refusal")


def find_dialect(row: Object) -> Dialect | None:
    """The dialect whose mark a row has; None if it could be of any."""
    if "event" in row:
        return "canonical"
    if row.get("role") in RESULT_ROLES or "tool_calls" in row or "function_call" in row:
        return "openai"
    if row.get("kind") in tuple(KINDS) and isinstance(row.get("parts"), list):
        return "pydantic-ai"
    content = row.get("content")
    return _find_in_blocks(content) if isinstance(content, list) and content else None


def _find_in_blocks(content: list[Any]) -> Dialect | None:
    kinds = [block.get("type") for block in content if isinstance(block, dict)]
    if any(kind in _OPENAI_PARTS for kind in kinds):
        return "openai"
    first = content[0]
    return "anthropic" if isinstance(first, dict) and "type" in first else None


def parse_row(row: Object, line: int, dialect: Dialect | None) -> tuple[Turn, ...]:
    """The turns of a row with the mark of a dialect, or without a mark."""
    match dialect:
        case "canonical":
            return (parse_canonical(row, line),)
        case "openai":
            return (parse_openai(row, line),)
        case "pydantic-ai":
            return parse_pydantic_ai(row, line)
        case _:
            return (parse_message(row, line),)


# Calls whose names are remembered for results without one.
_REMEMBERED: Final = 4096


class Conversation(msgspec.Struct, frozen=True):
    """A whole file, if it is small enough to hold in memory."""

    path: str
    dialect: Dialect
    """The dialect of the first row with a mark; plain if there is none."""
    turns: tuple[Turn, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    """Problems and notes; after strict reading only notes."""


def load_conversation(
    path: str, *, salvage: bool = False, line_limit: int = LINE_LIMIT
) -> Conversation:
    """Load the whole file."""
    reading = _Reading(salvage=salvage)
    turns: list[Turn] = []
    diagnostics: list[Diagnostic] = []
    for item in reading.items(path, line_limit):
        if isinstance(item, Turn):
            turns.append(item)
        else:
            diagnostics.append(item)
    return Conversation(path, reading.dialect or "plain", tuple(turns), tuple(diagnostics))


def read_turns(path: str, *, salvage: bool = False) -> Iterator[Turn | Diagnostic]:
    """Yield the file's turns one by one, with diagnostics in between."""
    return _Reading(salvage=salvage).items(path, LINE_LIMIT)


class _Reading:
    """The state of reading one file."""

    def __init__(self, *, salvage: bool) -> None:
        self.dialect: Dialect | None = None
        self._salvage = salvage
        self._names: dict[str, str] = {}

    def items(self, path: str, limit: int) -> Iterator[Turn | Diagnostic]:
        trace = OpenTrace(path, limit)
        try:
            for item in self._read(trace):
                if isinstance(item, Diagnostic) and item.is_problem and not self._salvage:
                    at = path if item.line is None else f"{path}:{item.line}"
                    raise TraceError(f"{at}: {item.message}")
                yield item
        finally:
            trace.close()

    def _read(self, trace: OpenTrace) -> Iterator[Turn | Diagnostic]:
        for number, line, ended in _lines(trace):
            if isinstance(line, Oversized):
                yield line.describe(number)
            elif line.strip():
                torn = not ended
                decoding = Decoding(number)
                value = decoding.decode(line, torn=torn)
                turns: list[Turn] = []
                if value is not msgspec.UNSET:
                    if torn:
                        decoding.note("no-line-end", "the last line has no line end")
                    rows = value if isinstance(value, list) else [value]
                    for row in rows:
                        if isinstance(row, dict):
                            turns += self._read_row(row, decoding)
                    _report_others([row for row in rows if not isinstance(row, dict)], decoding)
                yield from decoding.diagnostics
                yield from turns
        yield from trace.find_changes()

    def _read_row(self, row: Object, decoding: Decoding) -> list[Turn]:
        dialect = find_dialect(row)
        self.dialect = self.dialect or dialect
        try:
            turns = parse_row(row, decoding.line, dialect)
        except RecursionError:
            decoding.report("too-deep", "brackets nested deeper than can be read")
            return []
        return [self._complete(turn) for turn in turns]

    def _complete(self, turn: Turn) -> Turn:
        """Name the results of a turn after their calls."""
        for call in turn.calls:
            if call.call_id is not None and call.name:
                self._names.pop(call.call_id, None)
                self._names[call.call_id] = call.name
        # Ids of calls are kept for a few thousand calls only: memory must not grow with the file.
        while len(self._names) > _REMEMBERED:
            del self._names[next(iter(self._names))]
        if all(result.name is not None for result in turn.results):
            return turn
        results = (
            msgspec.structs.replace(result, name=self._names.get(result.call_id or ""))
            if result.name is None
            else result
            for result in turn.results
        )
        return msgspec.structs.replace(turn, results=tuple(results))


def _report_others(rows: list[Any], decoding: Decoding) -> None:
    """Report rows that are not objects, once per line: a line can have a million of them."""
    if rows:
        more = f" (and {len(rows) - 1:,} more in this line)" if len(rows) > 1 else ""
        message = f"{shown(rows[0])}{more}; expected a JSON object"
        decoding.report("not-an-object", message)


def _lines(trace: OpenTrace) -> Iterator[tuple[int, bytes | Oversized, bool]]:
    """The lines without their ends, each with its number and whether it has an end."""
    number = 1
    for piece in trace.pieces():
        if isinstance(piece, Oversized):
            yield number, piece, True
            number += 1
            continue
        start = 0
        while start < len(piece):
            end = piece.find(b"\n", start)
            stop = len(piece) if end < 0 else end
            yield number, piece[start:stop], end >= 0
            start = stop + 1
            number += 1
