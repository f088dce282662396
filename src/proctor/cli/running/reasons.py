"""Why trials of a job errored, and why records of it are partial, each with an example."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.agents.settings import redact_env
from proctor.audit.shown import REWARD_ERRORS
from proctor.cli.running.watching import shorten
from proctor.errors import RecordError
from proctor.files import read_small
from proctor.record.read import load_record
from proctor.record.rules import explain_partial
from proctor.sentence import count_of, printable
from proctor.traces.failures import Failure, name_exception, read_failures
from proctor.traces.traced_trial import TracedTrial
from proctor.traces.writer import Redactor

# Trials of one class of exception that are read, and different messages that are shown.
_MOST_READ = 50
_MOST_MESSAGES = 3
_MOST_LINES = 4
_TEXTS = ("result.json", "exception.txt", "agent/command.txt", "verifier/test-stdout.txt")


@dataclass(frozen=True, slots=True)
class ErrorExample:
    """One message of a class of exceptions, and a trial that ended with it."""

    trial: str
    failure: Failure
    verifier: Failure | None = None
    """What the verifier reported, if it left no reward."""


def collect_errors(
    directory: Path, exceptions: Mapping[str, list[str]]
) -> dict[str, list[ErrorExample]]:
    """Different messages of each class of exceptions, with an example of each."""
    return {
        kind: list(_find_examples(directory, names[:_MOST_READ]))
        for kind, names in exceptions.items()
    }


def _find_examples(directory: Path, names: Iterable[str]) -> Iterator[ErrorExample]:
    # The verifier's output may show a key of the host, and this text goes to logs of CI.
    redactor = redact_env(os.environ)
    seen: set[str] = set()
    for name in names:
        example = _load_example(directory / name, redactor)
        # Messages of one kind differ in the trial's own paths.
        line = "\n".join(example.failure.lines).replace(name, "") if example else ""
        if example is not None and line not in seen:
            seen.add(line)
            yield example
        if len(seen) == _MOST_MESSAGES:
            return


def _load_example(place: Path, redactor: Redactor) -> ErrorExample | None:
    trial = TracedTrial(
        name=place.name,
        files=tuple(name for name in _TEXTS if (place / name).is_file()),
        open_file=lambda name: contextlib.nullcontext(str(place / name)),
    )
    found = read_failures(trial, None)
    if not found.exceptions:
        return None
    failure = found.exceptions[0]
    verifier = None
    if found.tests and failure.title in REWARD_ERRORS:
        lines = tuple(map(redactor.redact_text, found.tests[0].lines))
        verifier = msgspec.structs.replace(found.tests[0], lines=lines)
    return ErrorExample(place.name, failure, verifier)


def render_errors(
    directory: Path,
    exceptions: Mapping[str, list[str]],
    errors: Mapping[str, list[ErrorExample]],
) -> Iterator[str]:
    """Each class of exceptions with its reasons, and where their whole texts are."""
    for kind, names in exceptions.items():
        if (name := name_exception(kind)) != kind:
            yield f"{name}: {count_of(len(names), 'trial')}; `proctor resume` runs them again"
            continue
        yield f"errored: {count_of(len(names), 'trial')} with {kind}"
        for example in errors[kind]:
            yield from _render_example(directory, example)


def _render_example(directory: Path, example: ErrorExample) -> Iterator[str]:
    first, *rest = example.failure.lines or (example.failure.line,)
    yield printable(f"  {example.trial}: {shorten(first)}")
    if example.verifier is not None:
        rest = ["verifier says:", *example.verifier.lines]
    yield from (printable(f"    {shorten(line)}") for line in rest[:_MOST_LINES])
    if file := (example.verifier or example.failure).file:
        yield f"    whole text: {directory / example.trial / file}"


def describe_errors(
    directory: Path, errors: Mapping[str, list[ErrorExample]]
) -> dict[str, list[dict[str, object]]]:
    """The examples as JSON."""
    return {
        kind: [_describe_example(directory, each) for each in examples]
        for kind, examples in errors.items()
    }


def _describe_example(directory: Path, example: ErrorExample) -> dict[str, object]:
    failure = example.failure
    return {
        "trial": example.trial,
        "line": failure.line,
        "lines": list(failure.lines),
        "whole_text": str(directory / example.trial / failure.file) if failure.file else None,
        "verifier": list(example.verifier.lines) if example.verifier else None,
    }


# Partial records


class _Completeness(msgspec.Struct, frozen=True):
    completeness: str = ""


_decode = msgspec.json.Decoder(_Completeness).decode


def collect_partial(directory: Path, trials: Iterable[str]) -> dict[str, list[str]]:
    """Trials with partial records, by what keeps the record from being complete."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        for why in _find_why_partial(f"{directory}/{trial}/record.json"):
            found.setdefault(why, []).append(trial)
    return found


def _find_why_partial(path: str) -> list[str]:
    # Most records are complete, and only a partial one is worth reading as a whole. Trials that
    # harbor ran have none.
    try:
        if _decode(read_small(path)).completeness != "partial":
            return []
        return explain_partial(load_record(Path(path), salvage=True).record)
    except (OSError, RecordError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def render_partial(partial: Mapping[str, list[str]]) -> Iterator[str]:
    """What is missing in partial records, and which option supplies it."""
    for why, trials in partial.items():
        more = " …" if len(trials) > 1 else ""
        yield f"partial records (diagnostic): {count_of(len(trials), 'trial')}, {trials[0]}{more}"
        yield f"  {why}"
