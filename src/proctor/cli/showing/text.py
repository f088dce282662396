"""Renders a trace for people: an entry is a head and its text, indented.

    step 3  tool_call  bash
        python calc.py

Long texts are shortened to their first and last lines; other content, such as images, is named.
Control characters of traces are escaped.
"""

import json
import re
from collections.abc import Iterator
from unicodedata import east_asian_width

from proctor.report.page.figures import render_seconds
from proctor.sentence import count_of, printable, without_data
from proctor.traces.entry import OUTPUT, Entry, Header, Object
from proctor.traces.tool_errors import EXIT, find_error
from proctor.traces.turn import Turn

LONGEST = 2000
"""Characters shown of a text by default."""
_INDENT = "    "
# The time of day, to a millisecond, in a timestamp of ours.
_TIME = slice(11, 23)
_NARROWEST = 20
# Lines that are left of a shortened text.
_FIRST_LINES, _LAST_LINES = 20, 12
_BARE_BASE64 = re.compile(r"[A-Za-z0-9+/]{200,}={0,2}")
_NOT_SHOWN = ", not shown"
_WIDE = frozenset("WF")
_SUBAGENT = "subagent_trajectory_ref"
_SUBAGENT_NAMES = ("trajectory_id", "trajectory_path", "session_id")


def render_entry(
    entry: Entry, width: int | None = None, *, longest: int | None = LONGEST
) -> list[str]:
    """Render an entry, wrapped at `width` columns; texts are shortened to `longest` characters."""
    if entry.role == OUTPUT:
        return list(_render_output(entry, width, longest))
    lines = [printable("  ".join(_head(entry)))]
    for label, text in _texts(entry):
        lines += _render_text(label, text, width, longest)
    return lines


def _render_output(entry: Entry, width: int | None, longest: int | None) -> Iterator[str]:
    """Render what a command printed: its lines, the first with the time."""
    time = printable((entry.timestamp or "")[_TIME]).ljust(_TIME.stop - _TIME.start)
    text = entry.stdout or ""
    if entry.command is not None:
        text = f"$ {entry.command}"
    elif entry.exit_code is not None or entry.duration_ms is not None:
        ending = entry.content or f"exit {entry.exit_code}"
        text = f"[{ending}, after {render_seconds((entry.duration_ms or 0) / 1000)}]"
    elif entry.content:
        text = f"[{entry.content}]"
    room = None if width is None else max(width - len(time) - 2, _NARROWEST)
    for line in fold(without_data(text, _NOT_SHOWN), longest):
        for piece in break_line(line, room):
            yield f"{time}  {piece}".rstrip()
            time = " " * len(time)


def render_turn(
    turn: Turn, width: int | None = None, *, longest: int | None = LONGEST, step: int | None = None
) -> list[str]:
    """Render a turn of a conversation, likewise; the head names the step that it begins."""
    begins = "" if step is None else f"  (step {step})"
    lines = [printable(f"line {turn.line}  {turn.role or '""'}{begins}")]
    texts = [("", turn.text), ("thinking", turn.thinking or "")]
    texts += [(f"call {call.name}", call.unparsed or _json(call.arguments)) for call in turn.calls]
    texts += [(f"result {result.name or ''}".strip(), result.text) for result in turn.results]
    texts += [("beside", _json(turn.rest))] if turn.rest else []
    for label, text in texts:
        if text:
            lines += _render_text(label, text, width, longest)
    return lines


def render_header(header: Header) -> str:
    """The line that opens a file."""
    return printable(f"{_brief(header.format)}, version {_brief(header.version)}")


def _head(entry: Entry) -> Iterator[str]:
    yield f"step {entry.step}"
    yield entry.role or '""'
    if entry.tool_name is not None:
        yield entry.tool_name
    if entry.exit_code is not None:
        yield f"exit {entry.exit_code}"
    if entry.duration_ms is not None:
        yield f"{entry.duration_ms:,} ms"
    if entry.call_type is not None:
        yield f"({entry.call_type})"
    found = find_error(entry) if entry.role == "tool_result" else None
    # An exit code needs no label.
    if found is not None and (found[0] != EXIT or entry.exit_code is None):
        yield f"error ({found[0]})"


def _texts(entry: Entry) -> Iterator[tuple[str, str]]:
    """All texts of an entry, each with a label or ""."""
    texts = [("", entry.content), ("", entry.command), ("", entry.stdout)]
    texts.append(("stderr", entry.stderr))
    if entry.stdout is None:
        texts.append(("summary", entry.output_summary))
    thinking, metadata = _split_metadata(entry.metadata or {})
    texts.append(("thinking", thinking))
    texts += [("subagent", name) for name in _name_subagents(entry.metadata or {})]
    # If a tool's only argument is its command, that was shown already.
    command_only = {"command": entry.command}
    for label, found in (
        ("arguments", None if entry.arguments == command_only else entry.arguments),
        ("metadata", metadata),
        ("meta_harness", entry.meta_harness),
    ):
        texts.append((label, _json(found) if found else None))
    texts += [("media", _name_medium(name)) for name in entry.media or ()]
    yield from ((label, text) for label, text in texts if text)


def _split_metadata(metadata: Object) -> tuple[str | None, Object]:
    """The reasoning of an agent in ATIF, and the rest without ATIF's own fields."""
    carried = metadata.get("atif")
    if not isinstance(carried, dict):
        return None, metadata
    thinking = carried.get("reasoning_content")
    if not isinstance(thinking, str):
        thinking = None
    hidden = {"document", "tool_call_id", _SUBAGENT, *(["reasoning_content"] if thinking else [])}
    left = {key: value for key, value in carried.items() if key not in hidden}
    others = {key: value for key, value in metadata.items() if key != "atif"}
    return thinking, others | ({"atif": left} if left else {})


def _name_subagents(metadata: Object) -> Iterator[str]:
    """The trajectories of subagents that ATIF refers to. They are named, never opened."""
    carried = metadata.get("atif")
    refs = carried.get(_SUBAGENT) if isinstance(carried, dict) else None
    for ref in refs if isinstance(refs, list) else ():
        if isinstance(ref, dict):
            names = [
                f"{key} {ref[key]}" for key in _SUBAGENT_NAMES if isinstance(ref.get(key), str)
            ]
            yield ", ".join(names) or "(unnamed)"


def _name_medium(name: str) -> str:
    is_data = _BARE_BASE64.fullmatch(name)
    return f"base64, {len(name):,} characters{_NOT_SHOWN}" if is_data else name


def _render_text(label: str, text: str, width: int | None, longest: int | None) -> Iterator[str]:
    first = f"{label}: " if label else ""
    room = None if width is None else max(width - len(_INDENT), _NARROWEST)
    for line in fold(first + without_data(text, _NOT_SHOWN), longest, len(first)):
        yield from (_INDENT + piece for piece in break_line(line, room))


def fold(text: str, longest: int | None = LONGEST, more: int = 0) -> list[str]:
    """Printable lines; of a text above `longest` characters, the first and the last.

    A single long line keeps its beginning, with `more` characters beyond the limit.
    """
    text = text.removesuffix("\n")
    total = text.count("\n") + 1
    if longest is None or (total <= _FIRST_LINES + _LAST_LINES + 1 and len(text) <= longest + more):
        return [_plain(line) for line in _split(text)]
    if total == 1:
        return _cut_line(text, longest + more)
    lines = _split(text, _FIRST_LINES)[: min(_FIRST_LINES, total)]
    first = lines[: _count_fitting(lines, longest // 2)]
    lines = _split_end(text, min(_LAST_LINES, total - len(first)))[::-1]
    last = lines[: _count_fitting(lines, longest // 2)][::-1]
    folded = total - len(first) - len(last)
    middle = [f"… {count_of(folded, 'line')} folded; --full shows them"] if folded else []
    return [
        *(shown for line in first for shown in _cut_line(line, longest // 2)),
        *middle,
        *(shown for line in last for shown in _cut_line(line, longest // 2)),
    ]


def _split(text: str, most: int = -1) -> list[str]:
    """The lines of a text; beyond `most`, the rest is one item."""
    # A carriage return before a newline is a line end on some systems; others are shown.
    *lines, last = text.split("\n", most)
    return [*(line.removesuffix("\r") for line in lines), last]


def _split_end(text: str, most: int) -> list[str]:
    """The last lines of a text."""
    if most <= 0:
        return []
    *lines, last = text.rsplit("\n", most)[-most:]
    return [*(line.removesuffix("\r") for line in lines), last]


def _count_fitting(lines: list[str], room: int) -> int:
    """How many lines fit into `room` characters; the first always does, cut."""
    for count, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return max(count, 1)
    return len(lines)


def _cut_line(line: str, longest: int) -> list[str]:
    shown, left = _cut(line, longest)
    return [_plain(shown), *([f"… {left:,} more characters"] if left else [])]


def _cut(text: str, longest: int) -> tuple[str, int]:
    left = max(len(text) - longest, 0)
    return (text[:longest], left) if left else (text, 0)


def _plain(line: str) -> str:
    return printable(line.expandtabs(4))


def break_line(line: str, room: int | None) -> Iterator[str]:
    """A line in pieces of `room` columns."""
    if room is None or (len(line) <= room and line.isascii()):
        yield line
    elif line.isascii():
        yield from (line[at : at + room] for at in range(0, len(line), room))
    else:
        yield from _broken_by_columns(line, room)


def _broken_by_columns(line: str, room: int) -> Iterator[str]:
    """`break_line` for lines with double-width characters."""
    start = columns = 0
    for at, char in enumerate(line):
        wide = 2 if east_asian_width(char) in _WIDE else 1
        if columns + wide > room:
            yield line[start:at]
            start, columns = at, 0
        columns += wide
    yield line[start:]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _brief(value: object) -> str:
    shown, left = _cut(value if isinstance(value, str) else str(value), 40)
    return f"{shown}…" if left else shown
