"""Which tool results are errors, how that is recognised, and whether the agent recovered.

One definition for every kind of trace, the most reliable sign first: an exit code other than 0, the
dialect's own error flag, a time-out or a signal, words. Words count only if no exit code is
recorded, because they can mislead: a printed file may contain an error message. So an exit code in
the text takes precedence, and words are searched at the beginning of lines, near either end of the
output.
"""

import re
from typing import Final

import msgspec

from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.calls import Call, shorten
from proctor.traces.counts import Tally, merge_fields
from proctor.traces.entry import Entry, Object

# Characters at either end of an output that are searched.
_NEAR: Final = 2048
_CODE = re.compile(
    r"\[exit code: (-?\d{1,9})\]"
    r"|<returncode>(-?\d{1,9})</returncode>"
    r'|"exit_code": ?(-?\d{1,9})'
    r"|^(?:Exit [Cc]ode:?|Process exited with code) (-?\d{1,9})\b",
    re.MULTILINE,
)
_STOPPED = re.compile(
    r"^(?:\S+: )?(?:\[?(?:command|execution|tool|process)\b.{0,40} timed out\b"
    r"|timed out after \d|timeout expired|killed by signal\b|segmentation fault\b|killed$)",
    re.MULTILINE | re.IGNORECASE,
)
_FAILED = re.compile(
    r"^(?:Traceback \(most recent call last\)"
    # Some tools print a form of which every field has a line: `Error: (none)`.
    r"|(?:[A-Za-z_][\w.]{0,60})?(?:Error|Exception)\b ?:(?! ?\(none\)$)"
    r"|(?:error|ERROR|fatal|FATAL|panic)(?:\[\w{1,9}\])?: "
    r"|\S.{0,200}: (?:command not found|not found|No such file or directory|Permission denied)$"
    r"|\S{0,60}: .{0,200}(?:syntax error|Syntax error))",
    re.MULTILINE,
)


def output_of(entry: Entry) -> str:
    """Both ends of a tool's output, stderr last; all of it if it is short."""
    out = entry.stdout or entry.output_summary or ""
    err = entry.stderr or ""
    text = f"{out}\n{err}" if out and err else out or err
    return text if len(text) <= 2 * _NEAR else f"{text[:_NEAR]}\n{text[-_NEAR:]}"


def find_printed_code(text: str) -> int | None:
    """The last exit code that an output mentions, if any."""
    found = None
    for match in _CODE.finditer(text):
        found = match
    if found is None:
        return None
    return int(next(group for group in found.groups() if group is not None))


EXIT: Final = "exit_nonzero"
FLAG: Final = "is_error"
STOPPED: Final = "timeout_or_signal"
TEXT: Final = "text"

# Keys that can contain such a flag.
_FLAGGED: Final = frozenset({"is_error", "isError", "conversation", ATIF_KEY})


class ToolError(msgspec.Struct, kw_only=True):
    """One result that is an error."""

    step: int
    tool: str
    command: str
    """The command; both ends, if it is long."""
    reason: str
    """The most reliable sign: EXIT, FLAG, STOPPED or TEXT."""
    exit_code: int | None
    """As recorded, or as in the output."""
    text: str
    """stderr, else stdout; both ends, if it is long."""
    part: str = ""
    """The step of a multi-step trial."""
    tool_worked_at: int | None = None
    """The first later step with a successful call of the same tool."""
    command_worked_at: int | None = None
    """The first later step with a successful call of the same tool and command."""

    @property
    def is_recovered(self) -> bool:
        """Whether the same tool worked again afterwards."""
        return self.tool_worked_at is not None


class ErrorSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The errors among the results of tools."""

    results: int = 0
    """Tool results, errors or not."""
    total: int = 0
    """Results that are errors."""
    by_reason: dict[str, int] = {}
    by_tool: dict[str, int] = {}
    by_exit_code: dict[str, int] = {}
    """By exit code, if there is one; -1 means a time-out in trajectories, 124 in timeout(1)."""
    first: ToolError | None = None
    last: ToolError | None = None
    rate: float | None = None
    """Errors per result; null without any result."""


def find_error(entry: Entry) -> tuple[str, int | None] | None:
    """The sign that a tool's result is an error, with its exit code; None if it is not one."""
    code = entry.exit_code
    if code:
        return EXIT, code
    metadata = entry.metadata
    if metadata is not None and not _FLAGGED.isdisjoint(metadata):
        for held in (metadata, *_beside(metadata)):
            if held.get("is_error") is True or held.get("isError") is True:
                return FLAG, code
    # A recorded 0 is conclusive: words in the output may come from a printed file.
    if code is not None:
        return None
    text = output_of(entry)
    code = find_printed_code(text) if text else None
    if code is not None:
        return (EXIT, code) if code else None
    if (metadata is not None and _is_cut_short(metadata)) or _STOPPED.search(text):
        return STOPPED, None
    return (TEXT, None) if _FAILED.search(text) else None


def _is_cut_short(metadata: Object) -> bool:
    """Whether a flag for time-outs or signals is set; a signal may have a number or a name."""
    return any(
        held.get("timed_out") is True or held.get("timeout") is True or bool(held.get("signal"))
        for held in (metadata, *_beside(metadata))
    )


def _beside(metadata: Object) -> tuple[Object, ...]:
    """What a dialect or ATIF stored in the metadata."""
    spoken, atif = metadata.get("conversation"), metadata.get(ATIF_KEY)
    extra = atif.get("extra") if isinstance(atif, dict) else None
    return tuple(held for held in (spoken, extra) if isinstance(held, dict))


class ToolErrors:
    """Collects the errors of one trace."""

    def __init__(self) -> None:
        self._results = self._total = 0
        self._tools, self._reasons, self._codes = Tally(), Tally(), Tally()
        self._watched: list[tuple[Call, ToolError]] = []
        """The first error, and the last one if it is another, each with its call."""

    def add(self, entry: Entry, call: Call) -> bool:
        """Count a result; return whether it is an error."""
        self._results += 1
        found = find_error(entry)
        if found is None:
            for failed, error in self._watched:
                if call.tool == failed.tool:
                    if error.tool_worked_at is None:
                        error.tool_worked_at = call.step
                    if error.command_worked_at is None and call.key == failed.key and call.command:
                        error.command_worked_at = call.step
            return False
        reason, code = found
        self._total += 1
        self._reasons.add(reason)
        self._tools.add(call.tool)
        if code is not None:
            self._codes.add(str(code))
        # The first error stays, the last is replaced; those between are only counted.
        out = entry.stdout or entry.output_summary or ""
        error = ToolError(
            step=entry.step,
            tool=call.tool,
            command=shorten(call.command),
            reason=reason,
            exit_code=code,
            text=shorten((entry.stderr or "").strip() or out.strip()),
        )
        self._watched[1:] = [(call, error)]
        return True

    def finish(self) -> ErrorSummary:
        """The errors of the whole trace."""
        errors = [error for _, error in self._watched]
        return ErrorSummary(
            results=self._results,
            total=self._total,
            rate=_rate(self._total, self._results),
            by_reason=self._reasons.ranked(),
            by_tool=self._tools.ranked(),
            by_exit_code=self._codes.ranked(),
            first=errors[0] if errors else None,
            last=errors[-1] if errors else None,
        )


def merge_errors(parts: dict[str, ErrorSummary]) -> ErrorSummary:
    """Merge the errors of a trial's parts; each error names its part."""
    firsts = [(part, each.first) for part, each in parts.items() if each.first]
    lasts = [(part, each.last) for part, each in parts.items() if each.last]
    each = parts.values()
    return merge_fields(
        list(each),
        rate=_rate(sum(one.total for one in each), sum(one.results for one in each)),
        first=_in_part(*firsts[0]) if firsts else None,
        last=_in_part(*lasts[-1]) if lasts else None,
    )


def _rate(total: int, results: int) -> float | None:
    return total / results if results else None


def _in_part(part: str, error: ToolError) -> ToolError:
    return msgspec.structs.replace(error, part=part)
