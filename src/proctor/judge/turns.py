"""Turns as a judge is shown them: the text, what was run, what came of it, all within limits.

Long texts lose their middle, and what is left says how much is missing. The turns that are shown
are those that the rules label: steps above 0 with a text or a call of the assistant, warm-up apart.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from proctor.inspection.classification.thoughts import find_thoughts
from proctor.trajectory.entry import Entry

MOST_TEXT: Final = 3000
MOST_THINKING: Final = 1500
MOST_COMMAND: Final = 1200
MOST_OUTPUT: Final = 700
MOST_ERRORS: Final = 700
"""Characters of a text, a thought, a command with its arguments, and what it printed."""
MOST_CALLS: Final = 10
"""Calls and results of one turn, each."""

type Shown = dict[str, Any]
"""A turn as JSON."""


@dataclass(slots=True)
class _Gathered:
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Shown] = field(default_factory=list)
    results: list[Shown] = field(default_factory=list)
    is_turn: bool = False
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """One turn as the judge sees it."""

    step: int
    shown: Shown


def show_turns(entries: Iterable[Entry]) -> list[ShownTurn]:
    """The turns of a trace, by step."""
    steps: dict[int, _Gathered] = {}
    for entry in entries:
        if entry.step > 0 and entry.call_type != "warmup":
            _gather(steps.setdefault(entry.step, _Gathered()), entry)
    return [ShownTurn(step, _show(steps[step])) for step in sorted(steps) if steps[step].is_turn]


def _gather(turn: _Gathered, entry: Entry) -> None:
    match entry.role:
        case "assistant":
            turn.is_turn = True
            if entry.content:
                turn.texts.append(entry.content[: MOST_TEXT * 4])
            turn.thoughts += find_thoughts(entry.metadata or {})
        case "tool_call":
            turn.is_turn = True
            _add(turn, turn.calls, _show_call(entry))
        case "tool_result":
            _add(turn, turn.results, _show_result(entry))
        case _:
            pass


def _add(turn: _Gathered, shown: list[Shown], one: Shown) -> None:
    if len(shown) < MOST_CALLS:
        shown.append(one)
    else:
        turn.left_out += 1


def _show(turn: _Gathered) -> Shown:
    shown: Shown = {
        "text": cut("\n".join(turn.texts), MOST_TEXT),
        "thinking": cut("\n".join(turn.thoughts), MOST_THINKING),
        "calls": turn.calls,
        "results": turn.results,
        "calls_and_results_left_out": turn.left_out,
    }
    return {key: value for key, value in shown.items() if value}


def _show_call(entry: Entry) -> Shown:
    shown: Shown = {"tool": cut(entry.tool_name or "", 100)}
    if entry.command:
        shown["command"] = cut(entry.command, MOST_COMMAND)
    others = {
        key: cut(value if isinstance(value, str) else repr(value)[:MOST_COMMAND], MOST_COMMAND // 4)
        for key, value in list((entry.arguments or {}).items())[:MOST_CALLS]
        if value != entry.command
    }
    return shown | ({"arguments": others} if others else {})


def _show_result(entry: Entry) -> Shown:
    shown: Shown = {
        "exit_code": entry.exit_code,
        "stdout": cut(entry.stdout or entry.output_summary or "", MOST_OUTPUT),
        "stderr": cut(entry.stderr or "", MOST_ERRORS),
    }
    return {key: value for key, value in shown.items() if value is not None and value != ""}


def cut(text: str, most: int) -> str:
    """A text without its middle, where it is longer than so many characters."""
    if len(text) <= most:
        return text
    kept = most // 2
    return f"{text[:kept]} […{len(text) - 2 * kept:,} characters…] {text[-kept:]}"
