"""An agent's actions and their answers, made comparable between two runs.

An action is a tool call: the tool, and its command (else its arguments) without insignificant
blanks. A step without a call is an action too, that of saying something; the text is not compared,
since a model rarely repeats itself word for word. Of a trace that is only recorded output, each
line is an action: a command, a line that it printed, or how it ended.

Answers are compared without what differs from run to run: times, process ids, temporary names. Each
is replaced by its name; NORMALISATIONS lists all of them. The answers themselves are never changed.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count, groupby, islice
from typing import Final

import msgspec

from proctor.digest import sha256_digest
from proctor.traces.atif.carry import pair_results
from proctor.traces.commands import read_commands
from proctor.traces.entry import OUTPUT, Entry

LONGEST: Final = 1 << 20
"""Most characters of an answer that are normalised; a longer one is compared as it is."""

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
"""Name, replacement and pattern, in the order in which they are applied."""

# A text must contain one of these, in lower case, before the much slower pattern is tried.
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
_RULES = [
    (_SIGNS.get(name, ("",)), instead, re.compile(pattern, re.MULTILINE))
    for name, instead, pattern in NORMALISATIONS
]
_LINE_END_BLANKS: Final = " \t\r"


def normalise_answer(text: str) -> str:
    """The text with variable parts replaced, and without blanks at the ends of lines."""
    if len(text) > LONGEST:
        return text
    lowered = text.lower()
    for signs, instead, rule in _RULES:
        if any(sign in lowered for sign in signs):
            text = rule.sub(instead, text)
    # A regular expression for trailing blanks is quadratic in long runs of blanks.
    return "\n".join(line.rstrip(_LINE_END_BLANKS) for line in text.split("\n")).strip("\n")


SAYS = "(says)"
"""The tool of an action that calls none."""
PRINTED: Final = "output"
"""The tool of a line that a command printed."""
_STARTED: Final = "command"
# Entries of one step that are paired at a time.
_MOST_OF_A_STEP = 1000
_BLANKS = re.compile(r"(?<=\S)[ \t]+")


class Action(msgspec.Struct, frozen=True, gc=False):
    """One action of an agent, and its answer."""

    step: int
    """The number of the step; of a line of recorded output, the number of the line."""
    tool: str
    command: str
    """As given; for a step without a call, its text."""
    answer: str | None
    """As received; None without a result."""
    exit_code: int | None
    key: bytes
    """Equal for equal actions."""
    answer_key: bytes | None
    """Equal for answers that are equal after normalisation; None without an answer."""


def read_actions(entries: Iterable[Entry]) -> Iterator[Action]:
    """Yield the actions of a trace, in order; only one step is held in memory."""
    for (step, is_output), group in groupby(
        entries, key=lambda entry: (entry.step, entry.role == OUTPUT)
    ):
        if is_output:
            yield from _read_output(group)
            continue
        while some := list(islice(group, _MOST_OF_A_STEP)):
            yield from _actions_of(step, some)


def _actions_of(step: int, entries: list[Entry]) -> Iterator[Action]:
    tools = [entry for entry in entries if entry.role in ("tool_call", "tool_result")]
    calls = [entry for entry in tools if entry.role == "tool_call"]
    if not calls:
        said = [entry.content or "" for entry in entries if entry.role == "assistant"]
        if said:
            yield _make_action(step, SAYS, "\n".join(said), [])
        return
    answers: list[list[Entry]] = [[] for _ in calls]
    results = deque(entry for entry in tools if entry.role == "tool_result")
    for call in pair_results((each.role == "tool_call", each.tool_name or None) for each in tools):
        result = results.popleft()
        if call is not None:
            answers[call].append(result)
    for call_entry, came in zip(calls, answers, strict=True):
        command = read_commands([call_entry])[0]
        yield _make_action(step, call_entry.tool_name or "", command, came)


def _read_output(entries: Iterable[Entry]) -> Iterator[Action]:
    numbers = count(1)
    for tool, text in _read_lines(entries):
        # How an agent is started differs between any two agents: what it printed is compared.
        compared = "" if tool == _STARTED else normalise_answer(text)
        key = _digest(f"{tool}\0{compared}")
        yield Action(next(numbers), tool, text, None, None, key=key, answer_key=None)


def _read_lines(entries: Iterable[Entry]) -> Iterator[tuple[str, str]]:
    """Lines with their tools. A line may come in several entries: it is held until its end."""
    held = ""
    for entry in entries:
        *lines, held = f"{held}{entry.content or ''}{entry.stdout or ''}".split("\n")
        yield from ((PRINTED, line) for line in lines)
        if entry.command is None and entry.exit_code is None:
            continue
        if held:
            yield PRINTED, held
        held = ""
        if entry.command is not None:
            yield _STARTED, entry.command
        if entry.exit_code is not None:
            yield "exit", str(entry.exit_code)
    if held:
        yield PRINTED, held


def _make_action(step: int, tool: str, command: str, results: list[Entry]) -> Action:
    answer = "\n".join(map(_text_of, results)) if results else None
    code = next((each.exit_code for each in results if each.exit_code is not None), None)
    compared = "" if tool == SAYS else normalise_command(command)
    return Action(
        step=step,
        tool=tool,
        command=command,
        answer=answer,
        exit_code=code,
        key=_digest(f"{tool}\0{compared}"),
        answer_key=None if answer is None else _digest(f"{code}\0{normalise_answer(answer)}"),
    )


def _text_of(result: Entry) -> str:
    texts = (result.stdout, result.stderr)
    if result.stdout is None and result.stderr is None:
        texts = (result.output_summary, None)
    return "\n".join(text.rstrip("\n") for text in texts if text)


def normalise_command(command: str) -> str:
    """Remove blank lines, blanks at line ends, and repeated blanks between words.

    In lines with quotes, and at the beginning of a line, blanks may matter and are kept.
    """
    lines = (line.rstrip() for line in command.replace("\r\n", "\n").split("\n"))
    kept = [
        line if "'" in line or '"' in line else _BLANKS.sub(" ", line) for line in lines if line
    ]
    if kept:
        kept[0] = kept[0].lstrip()
    return "\n".join(kept)


def _digest(text: str) -> bytes:
    return sha256_digest(text.encode(errors="surrogatepass"))[:16]
