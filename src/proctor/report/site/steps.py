"""The trace of a trial as blocks: one for each step, folded, cut aloud where it is too long."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Final

from proctor.report.page.blocks import Block, Heading, Lines, Paragraph
from proctor.sentence import count_of
from proctor.traces.entry import Entry
from proctor.traces.tool_errors import find_error
from proctor.traces.trace import TraceReading
from proctor.traces.traced_trial import FoundTrace, TracedTrial, opened_traces

MOST_STEPS: Final = 400
"""Steps of one trace that a page shows."""
MOST_CHARACTERS: Final = 400_000
"""Characters of one trace that a page shows."""
_LONGEST: Final = 4000
_LONGEST_SUMMARY: Final = 100


def tell_trace(trial: TracedTrial, name: str) -> Iterator[Block]:
    """The traces of a trial.

    Raises:
        TraceError, DamageError: one cannot be read.
    """
    with opened_traces(trial) as traces:
        if not traces:
            yield Paragraph("It left no trace that could be used.")
        for found in traces:
            yield from _tell_one(found, name)


def _tell_one(found: FoundTrace, name: str) -> Iterator[Block]:
    if found.part:
        yield Heading(f"Step {found.part}", 3)
    yield Paragraph(f"Read from {found.name}.", "soft")
    for sentence in found.passed_over:
        yield Paragraph(f"Not used: {sentence}", "warn")
    reading = TraceReading(found.path, found.kind)
    entries = chain.from_iterable(reading.batches())
    characters = 0
    for shown, (step, group) in enumerate(groupby(entries, key=lambda entry: entry.step)):
        if shown == MOST_STEPS or characters >= MOST_CHARACTERS:
            yield _cut(shown, step, name)
            break
        block = _tell_step(step, group, found.part)
        characters += sum(map(len, block.lines))
        yield block
    if reading.problems:
        which = count_of(reading.problems, "problem")
        yield Paragraph(f"{which} in the file: {'; '.join(reading.noticed)}", "warn")


def _cut(shown: int, step: int, name: str) -> Block:
    return Paragraph(
        f"Cut after {count_of(shown, 'step')}; `proctor show {name} --step {step}-` shows the "
        "rest.",
        "warn",
    )


def _tell_step(step: int, entries: Iterable[Entry], part: str) -> Lines:
    lines: list[str] = []
    summary, failed, left = "", False, MOST_CHARACTERS
    for entry in entries:
        failed = failed or (entry.role == "tool_result" and find_error(entry) is not None)
        summary = summary or _brief(entry)
        if left <= 0:
            continue
        before = len(lines)
        lines += _tell_entry(entry)
        left -= sum(map(len, lines[before:]))
    if left <= 0:
        lines.append("… the rest of this step is cut")
    head = f"step {step}" + (" · error" if failed else "") + (f" · {summary}" if summary else "")
    anchor = f"step-{step}" if not part else ""
    return Lines(tuple(lines), head, anchor, "bad" if failed else "")


def _brief(entry: Entry) -> str:
    text = entry.command or entry.content or ""
    line = " ".join(text[: 4 * _LONGEST_SUMMARY].split())
    said = line if len(line) <= _LONGEST_SUMMARY else f"{line[: _LONGEST_SUMMARY - 1]}…"
    who = entry.tool_name or entry.role
    return f"{who}: {said}" if said else ""


def _tell_entry(entry: Entry) -> Iterator[str]:
    code = "" if entry.exit_code is None else f", exit {entry.exit_code}"
    tool = f" {entry.tool_name}" if entry.tool_name else ""
    kind = f" ({entry.call_type})" if entry.call_type else ""
    yield f"[{entry.role}{tool}{code}{kind}]"
    for text in (entry.content, entry.command, entry.stdout or entry.output_summary):
        if text:
            yield from cut_text(text)
    if entry.stderr:
        yield "[stderr]"
        yield from cut_text(entry.stderr)
    if entry.arguments and entry.arguments != {"command": entry.command}:
        yield from cut_text(json.dumps(entry.arguments, ensure_ascii=False, default=str))
    yield ""


def cut_text(text: str, longest: int = _LONGEST) -> list[str]:
    """Lines of a text; of a long one both ends, and how much is missing between them."""
    if len(text) <= longest:
        return text.rstrip("\n").split("\n")
    half = longest // 2
    missing = f"… {len(text) - 2 * half:,} characters cut …"
    return [*text[:half].split("\n"), missing, *text[-half:].rstrip("\n").split("\n")]
