r"""Compare the outputs of commands then and now.

Two outputs are equal when their texts are equal, or equal after removing what legitimately varies.
That is a short, fixed list:

    colours and other control sequences of a terminal; blanks at the end of a line, empty last lines
    a day with or without a time, a time of day, `Aug  5 12:00`, `Tue Aug  5`      <time>
    a duration with its unit: 0.12s, 3 ms, 1.5 seconds                             <duration>
    /tmp/tmp… and names made by mktemp (tmp.XXXXXXXXXX)                            <temporary>
    a number after the word pid; the line `[1] 4711` of a command in the background  <pid>
    addresses from 0x and six digits on                                            <address>

Anything else that varies is a difference, and is shown. Exit codes are compared if both are
recorded; a command that timed out both times is equal, whatever its output.
"""

import re
from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from proctor.traces.commands import TIMED_OUT, Observation, ShellCommand

_SHOWN = 160

_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_ZONE = r"(?:Z\b|\s?[+-]\d{2}:?\d{2}\b|\s(?:UTC|GMT)\b)"
_VARYING = (
    (re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"), ""),
    (re.compile(rf"\b\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{_CLOCK}{_ZONE}?)?(?!\d)"), "<time>"),
    (
        re.compile(
            rf"\b(?:(?:{_DAYS}),?\s+)?(?:{_MONTHS})\s+\d{{1,2}}"
            rf"(?:\s+{_CLOCK}{_ZONE}?(?:\s+\d{{4}})?|\s+\d{{4}})?(?!\S)"
        ),
        "<time>",
    ),
    (re.compile(rf"(?<![\d:]){_CLOCK}{_ZONE}?(?![\d:])"), "<time>"),
    (re.compile(r"\b\d+(?:\.\d+)?\s?(?:ns|us|µs|ms|s|secs?|seconds?)\b"), "<duration>"),
    (re.compile(r"/tmp/tmp[\w.-]+|\btmp\.\w{6,}"), "<temporary>"),  # noqa: S108 - a pattern
    (re.compile(r"(?i)\b(pid)([ =:]+)\d+"), r"\1\2<pid>"),
    (re.compile(r"(?m)^\[\d+\] \d+$"), "<pid>"),
    (re.compile(r"\b0x[0-9a-fA-F]{6,}\b"), "<address>"),
)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first command with a different result."""

    step: int
    """The step of the recorded trace."""
    command: str
    """The beginning of the command."""
    what: str
    """output, exit code, or result: it was not reached."""
    then: str
    """The recorded value, as far as it differs."""
    now: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """How the outputs of a trace's commands compare."""

    commands: int
    """Commands that were run again."""
    compared: int
    """Of these, commands with a recorded result."""
    equal: int
    """Of these, commands with an equal result."""
    equal_after: int
    """Of the equal ones, those that are equal only after removing what varies."""
    first: Difference | None
    """The first that is not equal."""


def compare_all(then: Sequence[ShellCommand], now: Sequence[ShellCommand]) -> Compared:
    """Compare the recorded results of a trace's commands with those of the new run."""
    compared = equal = equal_after = 0
    first = None
    for before, after in zip(then, [*now, *[None] * len(then)], strict=False):
        if before.observation is None:
            continue
        compared += 1
        seen = None if after is None else after.observation
        difference = _compare(before, before.observation, seen)
        if difference is not None:
            first = first or difference
            continue
        equal += 1
        equal_after += seen is not None and not _is_exact(before.observation, seen)
    return Compared(
        commands=min(len(then), len(now)),
        compared=compared,
        equal=equal,
        equal_after=equal_after,
        first=first,
    )


def normalise(text: str) -> str:
    """Remove what legitimately varies."""
    for pattern, stand_in in _VARYING:
        text = pattern.sub(stand_in, text)
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n")


def _is_exact(then: Observation, now: Observation) -> bool:
    if then.text is None:
        text = now.text or ""
        return text.startswith(then.beginning or "") and text.endswith(then.ending or "")
    return then.text == now.text


def _compare(
    command: ShellCommand, then: Observation, now: Observation | None
) -> Difference | None:
    if now is None:
        return _differ(
            command, "result", _shorten(then.text or then.beginning or ""), "not reached"
        )
    if TIMED_OUT in (then.exit_code, now.exit_code) and then.exit_code == now.exit_code:
        return None
    codes = (then.exit_code, now.exit_code)
    if None not in codes and codes[0] != codes[1]:
        return _differ(command, "exit code", str(codes[0]), str(codes[1]))
    lines = _find_lines(then, normalise(now.text or ""))
    return None if lines is None else _differ(command, "output", *lines)


def _find_lines(then: Observation, now: str) -> tuple[str, str] | None:
    """The first line that differs, in both; for an output kept in part, in its kept parts."""
    if then.text is not None:
        before = normalise(then.text)
        return None if before == now else _first_lines(before.split("\n"), now.split("\n"))
    beginning, ending = _whole_lines(then)
    if not now.startswith(beginning):
        return _first_lines(beginning.split("\n"), now.split("\n"))
    if not now.endswith(ending):
        return _first_lines(ending.split("\n")[::-1], now.split("\n")[::-1])
    return None


def _whole_lines(then: Observation) -> tuple[str, str]:
    """The kept parts of an output, without cut lines: a varying value may be cut in two there."""
    beginning, ending = then.beginning or "", then.ending or ""
    if "\n" in beginning:
        beginning = beginning.rpartition("\n")[0]
    if "\n" in ending:
        ending = ending.partition("\n")[2]
    return normalise(beginning), normalise(ending)


def _first_lines(then: Sequence[str], now: Sequence[str]) -> tuple[str, str]:
    """The first line that differs, in both."""
    for before, after in zip_longest(then, now):
        if before != after:
            return (
                "(nothing more)" if before is None else _shorten(before),
                "(nothing more)" if after is None else _shorten(after),
            )
    return "", ""


def _differ(command: ShellCommand, what: str, then: str, now: str) -> Difference:
    return Difference(
        step=command.step, command=_shorten(command.command), what=what, then=then, now=now
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
