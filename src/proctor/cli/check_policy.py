"""`proctor check --policy`: checks jobs and experiments against a policy."""

import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.cli.ledger.options import choose_directory, open_ledger
from proctor.cli.ledger.progress import reading_progress
from proctor.cli.output import print_json, print_line
from proctor.cli.tables import print_rows
from proctor.errors import InputError
from proctor.ledger.claims.trust import load_verifier_key
from proctor.ledger.note import VerifierKey
from proctor.report.policy.as_sealed import compare_with_ledger
from proctor.report.policy.checking import check_submission
from proctor.report.policy.document import load_policy
from proctor.report.policy.from_jobs import load_jobs_submission
from proctor.report.policy.from_ledger import opened_experiment, verify_sealed
from proctor.report.policy.reason import PolicyCode
from proctor.report.policy.submission import SealedIn, Submission
from proctor.report.policy.verdict import CheckOutcome, Failure, Verdict
from proctor.sentence import count_of
from proctor.trial.finding import is_common, render_common

_MOST_SHOWN = 50
_MOST_NAMED = 5
_LISTED = "--json lists them all"


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The options of `check --policy`."""

    policy: str
    ledger: str | None
    since: tuple[str, ...]
    keys: tuple[str, ...]


def check_submissions(things: tuple[str, ...], options: PolicyOptions, *, as_json: bool) -> int:
    """Check each thing as one submission; returns the exit code."""
    _check_used(things, options)
    policy = load_policy(options.policy)
    verdicts = []
    reader = _SubmissionReader(options)
    for thing in things:
        with reader.opened(thing) as submission:
            verdicts.append(check_submission(policy, submission))
    is_passed = all(verdict.is_passed for verdict in verdicts)
    if as_json:
        documents = [_document(verdict) for verdict in verdicts]
        print_json({"passed": is_passed, "policy": policy.name, "submissions": documents})
    else:
        for verdict in verdicts:
            _print(verdict)
    return 0 if is_passed else 1


def _check_used(things: tuple[str, ...], options: PolicyOptions) -> None:
    """Refuse options that have no effect without a ledger."""
    if options.ledger is None and all(map(os.path.lexists, things)):
        for option, value in (("--since", options.since), ("--key", options.keys)):
            if value:
                raise InputError(
                    f"{things[0]}: a directory; {option} requires --ledger, the ledger that it "
                    "was sealed into"
                )


class _SubmissionReader:
    """Opens submissions; the ledger is verified once."""

    def __init__(self, options: PolicyOptions) -> None:
        self._asked = options
        self._verified: SealedIn | None = None

    @contextmanager
    def opened(self, thing: str) -> Iterator[Submission]:
        """Open a job, a directory of jobs, or an experiment of the ledger."""
        ledger = self._asked.ledger
        if not os.path.lexists(thing):
            sealed = self._verify(thing)
            with (
                open_ledger(ledger) as opened,
                opened_experiment(opened, thing, sealed) as submission,
            ):
                yield submission
            return
        submission = load_jobs_submission(_checked_job(thing), reading_progress(thing))
        if ledger is None:
            yield submission
            return
        sealed = self._verify(thing)
        if sealed.damage:
            # the content of a damaged ledger does not count
            yield replace(submission, sealed=sealed)
            return
        with open_ledger(ledger) as opened:
            yield compare_with_ledger(submission, opened, sealed)

    def _verify(self, thing: str) -> SealedIn:
        if self._verified is None:
            place = choose_directory(self._asked.ledger)
            if not place.exists():
                raise InputError(_say_absent(thing, place))
            self._verified = verify_sealed(place, self._find_key(), self._asked.since)
        return self._verified

    def _find_key(self) -> VerifierKey | None:
        if len(self._asked.keys) > 1:
            raise InputError(
                f"{len(self._asked.keys)} keys were given; expected one, the key of the ledger"
            )
        return load_verifier_key(self._asked.keys[0]) if self._asked.keys else None


def _say_absent(thing: str, ledger: Path) -> str:
    if os.path.lexists(thing):
        return f"{ledger}: there is no ledger to compare {thing} with"
    return (
        f"{thing}: there is no such directory, and no ledger at {ledger} that could contain an "
        "experiment of that name; --ledger or PROCTOR_LEDGER names one"
    )


def _checked_job(path: str) -> str:
    """Check that a path is a job; the error names what it is instead."""
    thing = find_file_kind(path)
    if thing not in (FileKind.JOB, FileKind.DATASET, FileKind.TRIAL):
        what = "name one of its experiments" if thing is FileKind.LEDGER else "expected a job"
        raise InputError(f"{path}: a {thing}; --policy requires a job or an experiment; {what}")
    return str(Path(path))


def _print(verdict: Verdict) -> None:
    result = "passed" if verdict.is_passed else "failed"
    trials = count_of(verdict.n_trials, "trial")
    print_line(f"{verdict.submission}: {verdict.policy.name}: {result} ({trials})")
    print_line()
    columns = ("check", "result", "reasons")
    rows = [_row(outcome) for outcome in verdict.outcomes if outcome.is_asked]
    print_rows(columns, rows, fold=("reasons",))
    print_line()
    for code, message, subjects in _group(verdict.of_submission()):
        print_line(f"{code}  {subjects or 'the submission'}: {message}")
    _print_trials(verdict)
    for what in _find_unchecked(verdict):
        print_line(f"not checked: {what}")


def _print_trials(verdict: Verdict) -> None:
    """Print what most trials have once, then the other reasons trial by trial."""
    common = _find_common(verdict)
    for code, n in common.items():
        print_line(f"{PolicyCode.OPEN_FINDING}  {render_common(code, n, verdict.n_trials)}")
    trials = {
        trial: said
        for trial, failures in verdict.by_trial().items()
        if (said := [line for each in failures if (line := _render_failure(each, common))])
    }
    for trial, lines in islice(trials.items(), _MOST_SHOWN):
        print_line(trial)
        for line in lines:
            print_line(f"  {line}")
    _print_more(len(trials))


def _find_common(verdict: Verdict) -> dict[str, int]:
    """Open findings that most trials have, with the number of trials."""
    counts = Counter(code for each in verdict.failures for code in _list_findings(each))
    return {code: n for code, n in counts.items() if is_common(code, n, verdict.n_trials)}


def _list_findings(failure: Failure) -> list[str]:
    return failure.message.split(", ") if failure.code is PolicyCode.OPEN_FINDING else []


def _render_failure(failure: Failure, common: Collection[str]) -> str | None:
    """A reason, without what most trials have; None if that is all of it."""
    found = _list_findings(failure)
    rest = [code for code in found if code not in common]
    if found and not rest:
        return None
    return f"{failure.code}  {', '.join(rest) or failure.message}"


def _group(failures: list[Failure]) -> Iterator[tuple[str, str, str]]:
    """Combine equal failures of several tasks into one line: code, message, tasks."""
    alike: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        subjects = alike.setdefault((failure.code, failure.message), [])
        subjects += [failure.subject] if failure.subject else []
    for (code, message), subjects in alike.items():
        more = len(subjects) - _MOST_NAMED
        shown = ", ".join(subjects[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        yield code, message, shown


def _print_more(n: int) -> None:
    if n > _MOST_SHOWN:
        print_line(f"and {n - _MOST_SHOWN:,} more; {_LISTED}")


def _row(outcome: CheckOutcome) -> tuple[str, str, str]:
    n = len(outcome.failures)
    result = f"failed {n:,}" if n else _say_passed(outcome)
    counts = Counter(failure.code for failure in outcome.failures)
    return str(outcome.check), result, ", ".join(f"{code} {n:,}" for code, n in counts.items())


def _say_passed(outcome: CheckOutcome) -> str:
    if not outcome.is_checked:
        return "not checked"
    return "passed, in part" if outcome.unchecked else "passed"


def _find_unchecked(verdict: Verdict) -> Iterator[str]:
    """What could not be checked, and what the policy does not require."""
    for outcome in verdict.outcomes:
        yield from (f"{outcome.check}: {why}" for why in outcome.unchecked)
    yield from verdict.unchecked
    silent = [str(outcome.check) for outcome in verdict.outcomes if not outcome.is_asked]
    if silent:
        yield f"{', '.join(silent)}: not required by the policy"


def _document(verdict: Verdict) -> dict[str, object]:
    return {
        "submission": verdict.submission,
        "passed": verdict.is_passed,
        "trials": verdict.n_trials,
        "counts": verdict.counts,
        "checks": [_check_document(outcome) for outcome in verdict.outcomes],
        "failures": [_failure_document(failure) for failure in verdict.failures],
        "unchecked": list(verdict.unchecked),
    }


def _check_document(outcome: CheckOutcome) -> dict[str, object]:
    return {
        "check": str(outcome.check),
        "asked": outcome.is_asked,
        "passed": outcome.is_passed if outcome.is_asked and outcome.is_checked else None,
        "failures": len(outcome.failures),
        "unchecked": list(outcome.unchecked),
    }


def _failure_document(failure: Failure) -> dict[str, object]:
    key = "trial" if failure.is_trial else "task"
    return {"code": str(failure.code), key: failure.subject, "message": failure.message}
