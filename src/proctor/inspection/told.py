"""What a result says in words: only looked at where no exit code is on record.

Texts can mislead: a file that was printed may hold the word of an error. So an exit code that the
text tells goes first, and words are looked for at the beginning of lines, near either end.
"""

import re
from typing import Final

from proctor.trajectory.entry import Entry

_NEAR: Final = 2048
"""Characters at either end of an output that are looked at."""
_CODE = re.compile(
    r"\[exit code: (-?\d{1,9})\]"
    r"|<returncode>(-?\d{1,9})</returncode>"
    r'|"exit_code": ?(-?\d{1,9})'
    r"|^(?:Exit code:?|Process exited with code) (-?\d{1,9})\b",
    re.MULTILINE,
)
_STOPPED = re.compile(
    r"^(?:\S+: )?(?:\[?(?:command|execution|tool|process)\b.{0,40} timed out\b"
    r"|timed out after \d|timeout expired|killed by signal\b|segmentation fault\b|killed$)",
    re.MULTILINE | re.IGNORECASE,
)
_FAILED = re.compile(
    r"^(?:Traceback \(most recent call last\)"
    r"|(?:[A-Za-z_][\w.]{0,60})?(?:Error|Exception)\b ?:"
    r"|(?:error|ERROR|fatal|FATAL|panic)(?:\[\w{1,9}\])?: "
    r"|\S.{0,200}: (?:command not found|not found|No such file or directory|Permission denied)$"
    r"|\S{0,60}: .{0,200}(?:syntax error|Syntax error))",
    re.MULTILINE,
)


def output_of(entry: Entry) -> str:
    """Both ends of what a tool printed, stderr last; all of it where it is short."""
    out = entry.stdout or entry.output_summary or ""
    err = entry.stderr or ""
    text = f"{out}\n{err}" if out and err else out or err
    return text if len(text) <= 2 * _NEAR else f"{text[:_NEAR]}\n{text[-_NEAR:]}"


def find_told_code(text: str) -> int | None:
    """The exit code that an output names last, where it names one."""
    found = None
    for match in _CODE.finditer(text):
        found = match
    if found is None:
        return None
    return int(next(group for group in found.groups() if group is not None))


def is_stopped(text: str) -> bool:
    """Whether it says that a time-out or a signal ended the tool."""
    return _STOPPED.search(text) is not None


def is_failure(text: str) -> bool:
    """Whether it has a line that only errors have."""
    return _FAILED.search(text) is not None
