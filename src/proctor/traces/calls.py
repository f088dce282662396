"""Tool calls: pairing results with calls, and repeated calls.

Calls and results have no common id, so they are paired by their order within a step.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from proctor.traces.entry import Entry, Object

MOST_OPEN: Final = 256
"""Most calls of one step that are remembered."""
_COMMANDS: Final = ("command", "cmd", "keystrokes")
# Characters kept of either end of a text.
_END: Final = 240
_ENCODE = msgspec.json.Encoder().encode


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call, for pairing it with its result."""

    step: int
    tool: str
    command: str
    """The command, else the arguments as JSON."""
    key: int
    """Equal for calls of the same tool with the same command; valid in this process only."""


def find_command(arguments: Object | None) -> str:
    """The command in a call's arguments, else all arguments as JSON."""
    if not arguments:
        return ""
    # Keystrokes count as a command here: what a terminal was sent is what the agent asked for.
    for key in _COMMANDS:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return " ".join(value)
    try:
        return _ENCODE(arguments).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError):
        return ""  # nested too deeply, or a lone surrogate


def take_answered(waiting: list[Call], entry: Entry) -> Call:
    """Remove and return the call that a result answers; without one, make it from the result."""
    name = entry.tool_name or ""
    # Results come in the order of their calls, so the first call that fits is the one.
    for at, call in enumerate(waiting):
        if call.step == entry.step and (not name or call.tool == name):
            return waiting.pop(at)
    return Call(entry.step, name, "", hash((name, "")))


def shorten(text: str) -> str:
    """Both ends of a long text; a short text unchanged."""
    return text if len(text) <= 2 * _END else f"{text[:_END]} … {text[-_END:]}"


def find_texts(values: Iterable[object]) -> list[str]:
    """The values that are non-empty texts."""
    return [value for value in values if isinstance(value, str) and value]


MOST_CALLS: Final = 1 << 16
"""Most different calls that are remembered; further ones are only compared with the last."""
_MOST_REPEATED: Final = 1 << 12
_MOST_STEPS: Final = 10
_SHOWN: Final = 5


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was made more than once."""

    tool: str
    command: str
    """Both ends, if it is long."""
    times: int
    """Total number of calls."""
    steps: tuple[int, ...]
    """The first ten steps with the call."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The same call several times in a row."""

    tool: str
    command: str
    times: int
    first_step: int
    last_step: int
    part: str = ""
    """The step of a multi-step trial."""


class LoopSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Repeated calls."""

    repeats: int = 0
    """Calls with a tool and command that occurred before."""
    longest: Run | None = None
    """The longest run of at least two."""
    most: tuple[Repeated, ...] = ()
    """The most frequent calls, at most five."""
    is_exact: bool = True
    """False if there were more different calls than are remembered."""


class Loops:
    """Collects the calls of one trace."""

    def __init__(self) -> None:
        self._first_steps: dict[int, int] = {}
        self._repeated: dict[int, tuple[Call, list[int]]] = {}
        """Calls made more than once, with their count and first steps."""
        self._repeats = 0
        self._is_exact = True
        self._last: Call | None = None
        self._times = self._began = 0
        self._longest: Run | None = None

    def add(self, call: Call) -> None:
        """Count a call."""
        if self._last is not None and self._last.key == call.key:
            self._times += 1
        else:
            self._end_run()
            self._times, self._began = 1, call.step
        self._last = call
        if call.key in self._first_steps:
            self._repeat(call)
        elif len(self._first_steps) < MOST_CALLS:
            self._first_steps[call.key] = call.step
        else:
            self._is_exact = False

    def _repeat(self, call: Call) -> None:
        self._repeats += 1
        if call.key not in self._repeated:
            if len(self._repeated) >= _MOST_REPEATED:
                self._is_exact = False
                return
            # Shortened at once: thousands of long commands would be too many to keep.
            kept = msgspec.structs.replace(call, command=shorten(call.command))
            self._repeated[call.key] = kept, [1, self._first_steps[call.key]]
        counted = self._repeated[call.key][1]
        counted[0] += 1
        if len(counted) <= _MOST_STEPS:
            counted.append(call.step)

    def _end_run(self) -> None:
        last = self._last
        if (
            last is None
            or self._times < 2
            or (self._longest and self._longest.times >= self._times)
        ):
            return
        self._longest = Run(
            tool=last.tool,
            command=shorten(last.command),
            times=self._times,
            first_step=self._began,
            last_step=last.step,
        )

    def finish(self) -> LoopSummary:
        """The repeated calls of the whole trace."""
        self._end_run()
        repeated = [
            Repeated(tool=call.tool, command=call.command, times=times, steps=tuple(steps))
            for call, (times, *steps) in self._repeated.values()
        ]
        ranked = sorted(repeated, key=lambda each: (-each.times, each.steps[0]))
        return LoopSummary(
            repeats=self._repeats,
            longest=self._longest,
            most=tuple(ranked[:_SHOWN]),
            is_exact=self._is_exact,
        )


def merge_loops(parts: dict[str, LoopSummary]) -> LoopSummary:
    """Merge the loops of a trial's parts; calls are not compared across parts."""
    runs = [
        msgspec.structs.replace(each.longest, part=part)
        for part, each in parts.items()
        if each.longest
    ]
    most = [one for each in parts.values() for one in each.most]
    return LoopSummary(
        repeats=sum(each.repeats for each in parts.values()),
        longest=max(runs, key=lambda run: run.times, default=None),
        most=tuple(sorted(most, key=lambda each: -each.times)[:_SHOWN]),
        is_exact=all(each.is_exact for each in parts.values()),
    )
