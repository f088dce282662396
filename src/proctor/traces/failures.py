"""What failed, in its own words: the informative lines of an output, and the failures of a trial.

    find_failures(text)           the failing tests, the exception or the last errors in an output
    find_message(message)         the same for the message of an exception: one line to quote
    read_failures(trial, reward)  a trial's exceptions, and what its verifier reported

Every command and page that explains a failure uses these. Lines are searched for words, so a line
can be badly chosen: each failure names the file with the whole text. Nothing here scores.
"""

import contextlib
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.errors import DamageError, InputError
from proctor.files import open_plain, read_small
from proctor.sentence import without_escapes
from proctor.traces.traced_trial import TracedTrial

PASSED: Final = 1.0
"""A reward below it is a failure, which has a cause."""
MOST_FAILURES: Final = 5
"""Failing tests of one output that are listed."""
_MOST_LINES: Final = 8
_LONGEST: Final = 400
# Characters of a message before the output that it quotes, and of a line of that output.
_LONGEST_HEAD: Final = 160
# Lines at the end of an output in which errors are searched; earlier ones were overcome.
_NEAR_END: Final = 40
# Bytes at either end of a log that are read.
_END: Final = 1 << 16
_MOST_LOGS: Final = 20


class LogText(msgspec.Struct, frozen=True, kw_only=True):
    """A file that may explain a failure."""

    name: str
    """Its path in the trial."""
    text: str
    """Its beginning and end."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure, in the words of the program that failed."""

    title: str = ""
    """The failing test or the class of the exception; empty if nothing names it."""
    line: str
    """The line that says most."""
    lines: tuple[str, ...]
    """All informative lines, in order, with `line` among them."""
    file: str = ""
    """The file of the trial that has the whole text."""
    step: str = ""
    """The step of a multi-step trial; empty for the trial itself."""


class TrialFailures(msgspec.Struct, frozen=True, kw_only=True):
    """What failed in a trial."""

    exceptions: tuple[Failure, ...] = ()
    """The exception that ended the trial, then those of its steps."""
    tests: tuple[Failure, ...] = ()
    """What the verifier reported, if the reward is below 1 or missing."""
    more_tests: int = 0
    """Failing tests that are not listed."""


def has_failed(reward: float | None) -> bool:
    """Whether a trial with this reward has failed: not scored, or scored below 1."""
    return reward is None or reward < PASSED


# Informative lines of a text


# BuildKit begins each line with the number of the step and the seconds since it began.
_BUILDKIT: Final = re.compile(r"^(?:#\d+ )?(?:\d+\.\d{1,3} )?")
_IS_BUILDKIT: Final = re.compile(r"^#\d+ ", re.MULTILINE)
_RULE: Final = re.compile(r"^[\s=\-_*#~.+^|]*$")
_HEADER: Final = re.compile(r"^_{2,} (.{1,300}?) _{2,}$")
_ASSERTION: Final = re.compile(r"^E(?:   (.*))?$")
_ADVICE: Final = re.compile(r"use -v+ to (?:show|get)", re.IGNORECASE)
_PYTEST_SUMMARY: Final = re.compile(r"^(?:FAILED|ERROR) ([^ ]{1,300}(?:::| *$)[^ ]*)(?: - (.*))?$")
_DIVIDER: Final = re.compile(r"^[=-]{10,}$")
_UNITTEST: Final = re.compile(r"^(?:FAIL|ERROR): (.{1,300})$")
_TRACEBACK: Final = "Traceback (most recent call last):"
_EXCEPTION: Final = re.compile(r"^((?:\w+\.)*[A-Z]\w*)(?::|$)")
_ERROR: Final = re.compile(
    r"\berrors?\b[:\]! ]|[a-z]Error\b|Exception\b|\bFAIL(?:ED|URE)?\b|\bfail(?:ed|ure)\b"
    r"|\bassert|\bfatal\b|\bpanicked\b|^not ok\b|^E: |^npm ERR! |\bexpected\b|\bmismatch"
    r"|\breceived\b|\bgot\b"
    r"|\bnot found\b|\bno such file\b|\bdenied\b|\bcannot\b|\bcould not\b|\bunable to\b|\binvalid\b"
    r"|\bmissing\b|\bkilled\b|\btimed out\b|\bwrong\b|\bunbound variable\b|\bsyntax error\b",
    re.IGNORECASE,
)
# Lines that begin as an error does; others only have words of one.
_STRONG: Final = re.compile(
    r"^\W{0,4}(?:error|fatal|npm ERR!)\b:? |^E: |: (?:fatal )?error: ", re.IGNORECASE
)
# Lines that say only that something failed, and lines that tools print in every run.
_NOISE: Final = re.compile(
    r"did not complete successfully|failed to solve|returned a non-zero code"
    r"|^make(?:\[\d+\])?: \*\*\* |A complete log of this run|subprocess-exited-with-error"
    r"|This error originates from a subprocess|debconf: |invoke-rc\.d|^Dockerfile:\d+$"
    r"|^\s*\d+ \|[ >]|^\[notice\]|^npm notice|^WARNING: Running pip as|^\(no output\)$"
    r"|^\W*\d+ (?:of \d+ )?(?:\w+ )?(?:passed|failed|errors?)\b|^FAILED \((?:failures|errors)="
    r"|^(?:Tests|Test Suites|Time|Snapshots): |^test result: |^failures:$|^note: run with"
    r"|^FAIL(?:\t.*)?$|^FAIL .{0,200}\.[jt]sx?$"
    r"|^Ran \d+ tests? in |^\+\+* (?:echo|exit|printf|mkdir|trap|cat|rm)\b|^-+>? *\[?\w* ?\d+/\d+\]"
    r"|^The command .{0,300} ended with|^exit (?:code|status)[: ]+\d+$|^\s*\^[\^~ ]*$",
    re.IGNORECASE,
)


def find_failures(text: str) -> list[Failure]:
    """The failures that an output reports: one for each failing test, else the one that ended it.

    Reads pytest, unittest, tracebacks, and plain output, of which it gives the last errors or
    else the last lines. Empty if the text says nothing.
    """
    lines = list(_clean(text))
    for find in _FINDERS:
        if found := find(lines):
            return found
    return []


def find_message(message: str) -> str:
    """The message of an exception in one line: how it begins, and what the output in it says."""
    head, _, output = message.strip().partition("\n")
    begin = _cut(head.strip(), _LONGEST_HEAD)
    found = find_failures(output)
    if not found or found[0].line in begin or found[0].line == "(no output)":
        return begin
    said = _cut(found[0].line, _LONGEST_HEAD)
    return f"{begin}: {said}" if begin else said


def _clean(text: str) -> Iterator[str]:
    """Lines without colours, overwritten progress and BuildKit's prefixes; long ones are cut."""
    is_buildkit = _IS_BUILDKIT.search(text) is not None
    for line in text.split("\n"):
        seen = line[: 4 * _LONGEST].rstrip().rpartition("\r")[2]
        seen = without_escapes(seen)
        if is_buildkit:
            seen = _BUILDKIT.sub("", seen)
        yield _cut(seen.rstrip())


def _cut(line: str, longest: int = _LONGEST) -> str:
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _make(lines: Iterable[str], title: str = "", *, key: str | None = None) -> Failure:
    kept = tuple(lines)[:_MOST_LINES]
    return Failure(title=title, line=kept[0].strip() if key is None else key, lines=kept)


def _find_pytest(lines: list[str]) -> list[Failure]:
    """The lines marked with E of each failing test; of chained exceptions, the last."""
    found: dict[str, list[str]] = {}
    title, was_marked = "", False
    for line in lines:
        marked = _ASSERTION.match(line)
        if marked:
            if not was_marked:
                found[title] = []
            found[title].append(marked[1] or "")
        elif header := _HEADER.match(line):
            title = header[1]
        was_marked = bool(marked)
    return [_of_assertion(marked, title) for title, marked in found.items() if any(marked)]


def _of_assertion(marked: list[str], title: str) -> Failure:
    said = [line for line in marked if line.strip() and not _ADVICE.search(line)] or marked
    kept = textwrap.dedent("\n".join(said)).strip("\n").split("\n")
    # A bare class says nothing where pytest shows the compared values below it.
    telling = (line.strip() for line in kept if line.strip() != "AssertionError")
    return _make(kept, title, key=next(telling, kept[0].strip()))


def _find_pytest_summary(lines: list[str]) -> list[Failure]:
    found = [match for match in map(_PYTEST_SUMMARY.match, lines) if match and "." in match[1]]
    return [_make([match[2] or match[0]], match[1].strip()) for match in found]


def _find_unittest(lines: list[str]) -> list[Failure]:
    found = []
    for at, line in enumerate(lines[:-1]):
        named = _UNITTEST.match(line)
        if not named or not _DIVIDER.match(lines[at + 1]):
            continue
        block = list(takewhile(lambda each: not _DIVIDER.match(each), lines[at + 2 :]))
        found += [
            msgspec.structs.replace(each, title=named[1]) for each in _find_traceback(block)[-1:]
        ]
    return found


def _is_rule(line: str) -> bool:
    return bool(_RULE.match(line))


def _find_traceback(lines: list[str]) -> list[Failure]:
    """The exception below the last traceback."""
    starts = [at for at, line in enumerate(lines) if line.strip() == _TRACEBACK]
    if not starts:
        return []
    margin = len(lines[starts[-1]]) - len(lines[starts[-1]].lstrip())
    after = [line[margin:] for line in lines[starts[-1] + 1 :]]
    begin = next((at for at, line in enumerate(after) if line and not line[0].isspace()), None)
    if begin is None:
        return []
    said = list(takewhile(bool, after[begin : begin + _MOST_LINES]))
    named = _EXCEPTION.match(said[0])
    return [_make(said, named[1].rpartition(".")[2] if named else "")]


def _find_errors(lines: list[str]) -> list[Failure]:
    """The last lines with words of an error, near the end, and what was printed below them."""
    near = [line for line in lines if not _is_rule(line) and not _NOISE.search(line)][-_NEAR_END:]
    worded = [at for at, line in enumerate(near) if _ERROR.search(line)]
    places = [at for at in worded if _STRONG.search(near[at])] or worded
    if not places:
        return []
    last = places[-1]
    said = [near[at] for at in places[-3:]] + near[last + 1 : last + 3]
    return [_of_lines(said, near[last])]


def _find_last(lines: list[str]) -> list[Failure]:
    """The last lines that are more than noise, else the last lines."""
    some = [line for line in lines if not _is_rule(line)]
    last = ([line for line in some if not _NOISE.search(line)] or some)[-3:]
    return [_of_lines(last, last[-1])] if last else []


def _of_lines(lines: list[str], key: str) -> Failure:
    plain = textwrap.dedent("\n".join(lines)).split("\n")
    return _make(dict.fromkeys(plain), key=key.strip())


_FINDERS: Final[tuple[Callable[[list[str]], list[Failure]], ...]] = (
    _find_pytest,
    _find_pytest_summary,
    _find_unittest,
    _find_traceback,
    _find_errors,
    _find_last,
)


# Failures of a trial


_RESULT: Final = "result.json"
_TRACEBACK_FILE: Final = "exception.txt"
_CTRF: Final = "verifier/ctrf.json"
_OUTPUTS: Final = ("verifier/test-stdout.txt", "verifier/test-stderr.txt")
# The whole output of an agent's command, of which the exception quotes the end.
_AGENT_OUTPUT: Final = "agent/command.txt"
_AGENT_FAILED: Final = "NonZeroAgentExitCodeError"


class _Exception(msgspec.Struct, frozen=True):
    exception_type: str = ""
    exception_message: str = ""
    exception_traceback: str = ""


class _Verified(msgspec.Struct, frozen=True):
    rewards: dict[str, Any] | None = None


class _Step(msgspec.Struct, frozen=True):
    step_name: str = ""
    exception_info: _Exception | None = None
    verifier_result: _Verified | None = None


class _Result(msgspec.Struct, frozen=True):
    exception_info: _Exception | None = None
    step_results: list[_Step] | None = None


class _Test(msgspec.Struct, frozen=True):
    name: str = ""
    status: str = ""
    message: str | None = None
    trace: str | None = None


class _Tests(msgspec.Struct, frozen=True):
    tests: list[_Test] = []


class _Ctrf(msgspec.Struct, frozen=True):
    results: _Tests = _Tests()


def read_failures(trial: TracedTrial, reward: float | None) -> TrialFailures:
    """What failed in a trial: its exceptions, and what its verifier reported if it did not pass.

    Files that are missing or cannot be read are passed over.
    """
    record = trial.record
    if record is not None and not has_failed(reward) and not record.evaluation.validity.errors:
        return TrialFailures()
    result = _load(trial, _RESULT, _Result) or _Result()
    exceptions = list(_list_exceptions(trial, result))
    tests = list(_list_tests(trial, result)) if has_failed(reward) else []
    return TrialFailures(
        exceptions=tuple(exceptions[:MOST_FAILURES]),
        tests=tuple(tests[:MOST_FAILURES]),
        more_tests=max(len(tests) - MOST_FAILURES, 0),
    )


# Exceptions whose message names a value and not what went wrong: the line of code says more.
_TERSE: Final = frozenset(
    {"AssertionError", "AttributeError", "IndexError", "KeyError", "NameError", "RecursionError"}
    | {"TypeError", "UnboundLocalError", "ZeroDivisionError"}
)
# Exceptions without a message that have nothing to do with the code that was running.
_STOPPED: Final = {
    "CancelledError": "the trial was cancelled",
    "KeyboardInterrupt": "the trial was interrupted",
    "TimeoutError": "it timed out",
}
# Exceptions by which files say that somebody stopped the job: no error of the agent or the task.
_INTERRUPTS: Final = frozenset({"CancelledError", "KeyboardInterrupt"})
_FRAME: Final = re.compile(r'^ +File "(.{1,400})", line (\d{1,9})(?:, in (.{1,200}))?$')


def name_exception(kind: str) -> str:
    """The class of an exception as people read it: `interrupted` if somebody stopped the job."""
    return "interrupted" if kind in _INTERRUPTS else kind


def describe_exception(kind: str, message: str, traceback: str = "") -> Failure:
    """An exception as a failure: its class, and its message with the output it quotes.

    If the message is empty or says little, the line of code that raised it is added.
    """
    head, _, output = (message.strip() or _STOPPED.get(kind, "")).partition("\n")
    lines = [_cut(head.strip())] if head.strip() else []
    if (not lines or kind in _TERSE) and (raised := _find_frame(traceback)):
        return Failure(title=kind, line=": ".join([*lines, raised]), lines=(*lines, raised))
    found = find_failures(output)
    if found and found[0].line != "(no output)":
        lines += found[0].lines
    return Failure(title=kind, line=find_message(message) or head, lines=tuple(lines))


def _find_frame(traceback: str) -> str | None:
    """The last frame of a traceback in one line: file, line, function and code."""
    lines = traceback.split("\n")
    for at in range(len(lines) - 1, -1, -1):
        if frame := _FRAME.match(lines[at]):
            code = lines[at + 1].strip() if at + 1 < len(lines) else ""
            place = f"{frame[1]}:{frame[2]}" + (f" in {frame[3]}" if frame[3] else "")
            return _cut(f"{place}: {code}" if code else place)
    return None


def _list_exceptions(trial: TracedTrial, result: _Result) -> Iterator[Failure]:
    named = [("", result.exception_info)]
    named += [(step.step_name, step.exception_info) for step in result.step_results or ()]
    for step, error in named:
        if error is not None and error.exception_type:
            # The file with the whole text of an exception.
            place = f"steps/{step}/" if step else ""
            names = [f"{place}{_TRACEBACK_FILE}", _TRACEBACK_FILE, _RESULT]
            if error.exception_type == _AGENT_FAILED:
                names.insert(0, f"{place}{_AGENT_OUTPUT}")
            file = next((name for name in names if name in trial.files), "")
            # Not from the agent's output: in the message, the agent's secrets are redacted.
            found = describe_exception(
                error.exception_type, error.exception_message, error.exception_traceback
            )
            yield msgspec.structs.replace(found, step=step, file=file)
    if trial.record is not None and not any(error for _, error in named):
        for text in trial.record.evaluation.validity.errors:
            yield describe_exception("", text)


def _list_tests(trial: TracedTrial, result: _Result) -> Iterator[Failure]:
    """The verifier's failures, of the trial and of each step that did not pass."""
    passed = {step.step_name for step in result.step_results or () if _has_passed(step)}
    there = (name.split("/")[1] for name in trial.files if name.startswith("steps/"))
    # In the order they ran; a killed trial has only the order of names.
    steps = dict.fromkeys(["", *(step.step_name for step in result.step_results or ()), *there])
    for step in steps:
        if step in passed:
            continue
        place = f"steps/{step}/" if step else ""
        found = list(_read_ctrf(trial, place)) or list(_read_outputs(trial, place))
        yield from (msgspec.structs.replace(each, step=step) for each in found)


def _has_passed(step: _Step) -> bool:
    rewards = step.verifier_result.rewards if step.verifier_result else None
    return bool(rewards) and all(
        isinstance(each, int | float) and each >= 1 for each in (rewards or {}).values()
    )


def _read_ctrf(trial: TracedTrial, place: str) -> Iterator[Failure]:
    """The failed tests of a CTRF report."""
    report = _load(trial, f"{place}{_CTRF}", _Ctrf) or _Ctrf()
    for test in report.results.tests:
        if test.status != "failed":
            continue
        said = find_failures(test.trace or "") or find_failures(test.message or "")
        found = said[0] if said else _make(["failed"])
        title = test.name or found.title
        yield msgspec.structs.replace(found, title=title, file=f"{place}{_CTRF}")


def _read_outputs(trial: TracedTrial, place: str) -> Iterator[Failure]:
    for log in read_logs(trial, [f"{place}{name}" for name in _OUTPUTS], in_steps=False):
        found = find_failures(log.text)
        yield from (msgspec.structs.replace(each, file=log.name) for each in found)
        if found:
            return


def _load[T](trial: TracedTrial, name: str, kind: type[T]) -> T | None:
    if name not in trial.files:
        return None
    with (
        contextlib.suppress(OSError, InputError, DamageError, msgspec.MsgspecError, RecursionError),
        contextlib.suppress(UnicodeDecodeError),
        trial.open_file(name) as path,
    ):
        return msgspec.json.decode(read_small(path), type=kind)
    return None


def read_logs(
    trial: TracedTrial, names: Iterable[str], *, in_steps: bool = True
) -> tuple[LogText, ...]:
    """The beginnings and ends of the files with these names, of the trial and of its steps."""
    wanted = [
        file
        for name in names
        for file in trial.files
        if file == name or (in_steps and file.startswith("steps/") and file.endswith(f"/{name}"))
    ]
    found = []
    for name in wanted[:_MOST_LOGS]:
        with contextlib.suppress(OSError, DamageError), trial.open_file(name) as path:
            found.append(LogText(name=name, text=_read_ends(path)))
    return tuple(found)


def _read_ends(path: str) -> str:
    with open_plain(Path(path)) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(_END)
        # Both ends: what failed to start is at the beginning, the verdict at the end.
        if size > 2 * _END:
            file.seek(size - _END)
            data += b"\n"
        data += file.read(_END)
    return data.decode("utf-8", "replace")
