"""Parts of an answer that differ from run to run and mean nothing: times, process ids, temp names.

Each is replaced by its name, so that two answers can be compared. What was replaced is a list that
anyone can read; nothing else is forgiven. The answers themselves are never changed.
"""

import re
from typing import Final

LONGEST: Final = 1 << 20
"""Characters of an answer that are made comparable; beyond them it is compared as it is."""

NORMALISATIONS: Final = (
    ("colours", "", r"\x1b\[[0-9;]{0,20}m"),
    ("uuid", "<uuid>", r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
    (
        "date and time",
        "<time>",
        r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z| ?[+-]\d\d:?\d\d)?(?!\d)",
    ),
    (
        "date and time in words",
        "<time>",
        r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:\d{1,2} )?"
        r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(?: {1,2}\d{1,2})?,?"
        r"(?: \d\d:\d\d(?::\d\d)?(?: [AP]M)?(?: [A-Z]{3,4})?(?: \d{4})?"
        r"| {1,2}\d{4}(?: \d\d:\d\d:\d\d)?)",
    ),
    ("time of day", "<time>", r"\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\b"),
    (
        "duration",
        "<duration>",
        r"\b\d{1,9}m\d{1,9}(?:\.\d{1,9})?s\b"
        r"|\b\d{1,9}(?:\.\d{1,9})? ?(?:ns|us|µs|ms|s|secs?|seconds?|minutes?)\b",
    ),
    ("process id", "<pid>", r"(?i:\bpid(?:=|:? ))\d{1,9}\b|^\[\d{1,4}\] \d{1,9}$"),
    (
        "temporary name",
        "<temp>",
        r"/(?:var/)?tmp/[\w.-]{0,60}(?:tmp\w{6,}|\.\w{6,}|[_-]\w{8,})\b|\btmp[a-z0-9_]{8}\b",
    ),
    ("address", "<address>", r"\b0x[0-9a-f]{6,16}\b"),
    ("port", "<port>", r"(?<=localhost:)\d{4,5}\b|(?<=127\.0\.0\.1:)\d{4,5}\b"),
)
"""Name, what stands in its place, and how it is told. The order counts."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SIGNS: Final = {
    "colours": ("\x1b",),
    "uuid": ("-",),
    "date and time": ("-",),
    "date and time in words": _MONTHS,
    "time of day": (":",),
    "process id": ("pid", "["),
    "temporary name": ("tmp",),
    "address": ("0x",),
    "port": ("localhost:", "127.0.0.1:"),
}
"""What a text has, in small letters, in which something of that kind is: looked for first, because
it is found sooner than the thing itself."""
_RULES = [
    (_SIGNS.get(name, ("",)), instead, re.compile(pattern, re.MULTILINE))
    for name, instead, pattern in NORMALISATIONS
]
_BLANKS: Final = " \t\r"


def normalise_answer(text: str) -> str:
    """The text with what means nothing taken out, and without blanks at the ends of lines."""
    if len(text) > LONGEST:
        return text
    lowered = text.lower()
    for signs, instead, rule in _RULES:
        if any(sign in lowered for sign in signs):
            text = rule.sub(instead, text)
    # An expression for blanks at an end would try every blank of a row that ends in a word.
    return "\n".join(line.rstrip(_BLANKS) for line in text.split("\n")).strip("\n")
