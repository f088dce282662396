"""A trace as text for people: an entry is a head and what was said, indented.

    step 3  tool_call  bash
        python calc.py

Nothing is printed here, and no control character of a trace gets through.
"""

import json
from collections.abc import Iterable, Iterator

from proctor.cli.printable import printable
from proctor.trajectory.entry import Entry, Header, Object
from proctor.trajectory.turn import Turn

LONGEST = 2000
"""Characters of one text that are shown unless more are asked for."""
_INDENT = "    "
_NARROWEST = 20


def render_entry(
    entry: Entry, width: int | None = None, *, longest: int | None = LONGEST
) -> list[str]:
    """Lines of an entry, broken at `width` columns; texts are cut after `longest` characters."""
    lines = [printable("  ".join(_head(entry)))]
    for label, text in _texts(entry):
        lines += _render_text(label, text, width, longest)
    return lines


def render_turn(
    turn: Turn, width: int | None = None, *, longest: int | None = LONGEST
) -> list[str]:
    """Lines of a turn of a conversation, likewise."""
    lines = [printable(f"line {turn.line}  {turn.role or '""'}")]
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


def _texts(entry: Entry) -> Iterator[tuple[str, str]]:
    """Everything an entry says, with what to call it; what is usual has no name."""
    texts = [("", entry.content), ("", entry.command), ("", entry.stdout)]
    texts.append(("stderr", entry.stderr))
    if entry.stdout is None:
        texts.append(("summary", entry.output_summary))
    thinking, metadata = _split_metadata(entry.metadata or {})
    texts.append(("thinking", thinking))
    # A tool whose only argument is its command has said it already.
    said = {"command": entry.command}
    for label, found in (
        ("arguments", None if entry.arguments == said else entry.arguments),
        ("metadata", metadata),
        ("meta_harness", entry.meta_harness),
    ):
        texts.append((label, _json(found) if found else None))
    texts += [("media", name) for name in entry.media or ()]
    yield from ((label, text) for label, text in texts if text)


def _split_metadata(metadata: Object) -> tuple[str | None, Object]:
    """What an agent thought, where ATIF says it, and the rest without ATIF's own housekeeping."""
    carried = metadata.get("atif")
    if not isinstance(carried, dict):
        return None, metadata
    thinking = carried.get("reasoning_content")
    if not isinstance(thinking, str):
        thinking = None
    hidden = {"document", "tool_call_id", *(["reasoning_content"] if thinking else [])}
    left = {key: value for key, value in carried.items() if key not in hidden}
    others = {key: value for key, value in metadata.items() if key != "atif"}
    return thinking, others | ({"atif": left} if left else {})


def _render_text(label: str, text: str, width: int | None, longest: int | None) -> Iterator[str]:
    shown, left = _cut(text, longest)
    first = f"{label}: " if label else ""
    room = None if width is None else max(width - len(_INDENT), _NARROWEST)
    for line in _lines(first + shown):
        yield from (_INDENT + piece for piece in _broken(line, room))
    if left:
        yield f"{_INDENT}… {left:,} more characters"


def _cut(text: str, longest: int | None) -> tuple[str, int]:
    left = 0 if longest is None else max(len(text) - longest, 0)
    return (text[:longest], left) if left else (text, 0)


def _lines(text: str) -> Iterable[str]:
    """Lines of a text; only a newline ends one, and the last need not."""
    # A carriage return before a newline is how some systems end a line; others are shown.
    plain = text.replace("\r\n", "\n").removesuffix("\n")
    return (printable(line.expandtabs(4)) for line in plain.split("\n"))


def _broken(line: str, room: int | None) -> Iterator[str]:
    if room is None or len(line) <= room:
        yield line
    else:
        yield from (line[at : at + room] for at in range(0, len(line), room))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _brief(value: object) -> str:
    shown, left = _cut(value if isinstance(value, str) else str(value), 40)
    return f"{shown}…" if left else shown
