"""Renders blocks as Markdown (GitHub's). Names cannot inject links, tags, tables or headings."""

import re
from collections.abc import Iterable, Iterator

from proctor.report.page.blocks import Block, Document, Facts, Heading, Lines, Paragraph, Table
from proctor.report.page.text import draw_plot
from proctor.sentence import printable

_SPECIAL = re.compile(r"[*_{}\[\]~#$!\\`|<>&@]|:(?=//)|(?<=www)\.", re.IGNORECASE)
# The others are escaped as HTML: a backslash before them could be part of a table.
_TAKES_A_BACKSLASH = "*_{}[]~#$!"
_WIDTH = 80
_MARKED = {"warn": "Note", "bad": "Problem"}


def render_markdown(document: Document) -> str:
    """Render a whole document, ending in a newline."""
    parts = [f"# {escape(document.title)}", *map(_render, document.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Escape text so that it is literal anywhere in a line, also addresses and names after `@`."""
    return _SPECIAL.sub(_spell, printable(text.replace("\n", " ")))


def _spell(match: re.Match[str]) -> str:
    return f"\\{match[0]}" if match[0] in _TAKES_A_BACKSLASH else f"&#{ord(match[0])};"


def render_table(
    headings: Iterable[str], rows: Iterable[Iterable[str]], *, rights: Iterable[bool] = ()
) -> list[str]:
    """The lines of a table; everything in it is escaped, and columns of `rights` are numbers."""
    names = list(headings)
    marks = list(rights) or [False] * len(names)
    head = [_row(map(escape, names)), _row("--:" if right else "---" for right in marks)]
    return [*head, *(_row(map(escape, row)) for row in rows)]


def _render(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {escape(block.text)}"
        case Paragraph():
            mark = _MARKED.get(block.tone)
            return f"> **{mark}:** {escape(block.text)}" if mark else _at_start(escape(block.text))
        case Facts():
            rows = [(label, text.replace("\n", "; ")) for label, text in block.rows]
            return "\n".join(render_table(["", ""], rows))
        case Table():
            headings = [column.name for column in block.columns]
            rights = [column.is_number for column in block.columns]
            cells = ([cell.text for cell in row] for row in block.rows)
            return "\n".join(render_table(headings, cells, rights=rights))
        case Lines():
            head = f"{escape(block.summary)}\n\n" if block.summary else ""
            return head + _render_lines(block.lines)
        case _:
            drawn = list(draw_plot(block, _WIDTH))
            return f"{escape(block.title)}\n\n{_render_lines(drawn)}" if drawn else ""


def _at_start(line: str) -> str:
    """Escape the start of a line, so that it begins neither a list nor a quotation."""
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", re.sub(r"^([-+=])", r"\\\1", line))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _render_lines(lines: Iterable[str]) -> str:
    """Lines in a code block whose fence is longer than any in the lines."""
    shown = [printable(line) for line in lines]
    longest = max((len(run) for line in shown for run in _ticks(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *shown, fence])


def _ticks(line: str) -> Iterator[str]:
    return (found[0] for found in re.finditer("`+", line))
