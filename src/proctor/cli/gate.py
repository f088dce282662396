"""`proctor gate`: checks runs against limits, and reports by exit code."""

import math
import os
from importlib import import_module
from pathlib import Path

import click
import msgspec

from proctor.cli.ledger.options import choose_directory, ledger_option, open_ledger
from proctor.cli.ledger.progress import make_progress, reading_progress
from proctor.cli.options import PATH, STDOUT, check_companions, sample_option
from proctor.cli.output import json_option, print_json, print_line, write_file
from proctor.cli.stdout import print_stderr, send
from proctor.errors import DamageError, InputError
from proctor.report.gate.judging import (
    Judged,
    judge,
    list_missing,
    render_errors,
    render_spent,
)
from proctor.report.gate.junit import render_junit
from proctor.report.gate.limits import Check, Limits, MaxErrors, Miss, gravest
from proctor.report.gate.markdown import render_markdown
from proctor.report.gate.measured import Measured, measure_experiment, measure_job
from proctor.report.gate.numbers import FindInterval, GroupNumbers
from proctor.report.page.figures import render_estimate, render_percent_ends
from proctor.report.runs import check_job, check_name, is_sealed
from proctor.sentence import render_percent

# Parameter types for the limits


_MOST_DIGITS = 9


class ErrorsType(click.ParamType[MaxErrors]):
    """A number of trials, such as 3, or a share of them, such as 0.05 or 5%."""

    name = "N|SHARE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> MaxErrors:
        """Parse the value."""
        if isinstance(value, MaxErrors):
            return value
        text = str(value)
        if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
            return MaxErrors(count=int(text))
        share = _parse(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not 0 <= share <= 1:
            self.fail(f"{text!r}: expected trials (3) or a share of them (0.05, 5%)", param, ctx)
        return MaxErrors(share=share)


class NumberType(click.ParamType[float]):
    """A finite number, optionally with a minimum."""

    name = "X"

    def __init__(self, least: float = -math.inf) -> None:
        self.least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the value."""
        number = value if isinstance(value, float) else _parse(str(value))
        if not math.isfinite(number) or number < self.least:
            what = "a number" if self.least < 0 else f"a number, {self.least:g} or more"
            self.fail(f"{value!r}: expected {what}", param, ctx)
        return number


def _parse(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


# Output: lines for people, and one JSON document


def print_judged(judged: list[Judged], miss: Miss | None) -> None:
    """Print every run with its numbers and conditions, then the verdict."""
    for each in judged:
        _print_run(each)
        print_line()
    print_line(f"gate: {render_verdict(miss)}")


def render_verdict(miss: Miss | None) -> str:
    """Whether the gate is met; if not, with its exit code."""
    return f"MISSED: {miss} (exit code {miss.exit_code})" if miss else "met (exit code 0)"


def _print_run(judged: Judged) -> None:
    measured = judged.measured
    print_line(f"{measured.name} ({measured.kind})")
    for group in judged.groups:
        for line in _lines_of(group):
            print_line(f"  {line}")
    for line in _basis_of(judged):
        print_line(f"  {line}")
    for check in judged.checks:
        print_line(f"  {_render_check(check)}")


def _lines_of(group: GroupNumbers) -> list[str]:
    of = f" of {group.reward_key}" if group.reward_key else ""
    ends = render_percent_ends(group.pass_interval)
    rate = f"{render_percent(group.pass_rate)} {ends}".rstrip()
    return [
        f"{group.key}: {group.run} run, {group.scored} scored, {group.zero_by_missing} missing "
        "(counted as 0)",
        f"  mean{of}  {render_estimate(group.mean, group.mean_interval)}",
        f"  pass rate  {rate}: {group.passed} of {group.run}",
    ]


def _basis_of(judged: Judged) -> list[str]:
    measured = judged.measured
    planned = "?" if measured.planned is None else measured.planned
    not_run = "?" if measured.not_run is None else measured.not_run
    parts = f"{measured.run} run + {measured.broken} cannot be read + {not_run} not run"
    if measured.withheld:
        parts += f" + {measured.withheld} withheld"
    lines = [f"trials: {planned} planned = {parts}"]
    if measured.superseded:
        lines.append(f"        {measured.superseded} superseded or restarted: not counted")
    lines.append(f"errors: {render_errors(judged.errors)}")
    lines.append(f"cost: {render_spent(judged.cost)}")
    if missing := list_missing(measured):
        lines.append(f"incomplete: {'; '.join(missing)}")
    return lines + [f"note: {note}" for note in measured.notes]


def _render_check(check: Check) -> str:
    about = f"{check.group}: " if check.group else ""
    verdict = "ok    " if check.is_met else "MISSED"
    line = f"{verdict}  {about}{check.condition}: {check.found}"
    return line if check.miss is None else f"{line}  ({check.miss}, {check.miss.exit_code})"


def document_of(judged: list[Judged], miss: Miss | None) -> dict[str, object]:
    """The result as JSON."""
    return {
        "met": miss is None,
        "miss": miss,
        "exit_code": miss.exit_code if miss else 0,
        "runs": [_run_document(each) for each in judged],
    }


def _run_document(judged: Judged) -> dict[str, object]:
    measured, cost = judged.measured, judged.cost
    return {
        "name": measured.name,
        "kind": measured.kind,
        "place": measured.place,
        "denominators": measured.denominators,
        "incomplete": list_missing(measured),
        "groups": [msgspec.to_builtins(group) for group in judged.groups],
        "errors": msgspec.to_builtins(judged.errors),
        "cost_usd": {
            "total": cost.total,
            "per_pass": cost.per_success,
            "known": cost.known,
            "n_known": cost.n_known,
            "n_unknown": cost.n_unknown,
        },
        "against": {key: _drop_document(judged, key) for key in judged.drops},
        "checks": [{**msgspec.to_builtins(check), "met": check.is_met} for check in judged.checks],
        "damage": measured.damage,
        "unshown": measured.unshown,
        "notes": measured.notes,
    }


def _drop_document(judged: Judged, key: str) -> dict[str, object]:
    drop = judged.drops[key]
    return {
        "baseline": drop.baseline,
        "paired": msgspec.to_builtins(drop.paired),
        "other_revision": drop.changed,
    }


_CONDITIONS = (
    "min_mean",
    "min_pass_rate",
    "max_errors",
    "max_cost_usd",
    "min_trials",
    "require_complete",
    "against",
)

# The function that computes the interval of a mean, imported on use.
_INTERVALS = {
    "bootstrap": ("proctor.report.statistics.bootstrap", "cluster_bootstrap"),
    "student": ("proctor.report.statistics.student", "cluster_student"),
}


@click.command("gate")
@click.argument("things", metavar="JOB|EXPERIMENT...", nargs=-1, required=True)
@click.option("--min-mean", type=NumberType(), help="Require at least this mean in each group.")
@click.option(
    "--min-pass-rate", type=NumberType(0), help="Require at least this share of passed trials."
)
@click.option(
    "--max-errors",
    type=ErrorsType(),
    help="Allow at most this many errors: a number of trials, or a share of them.",
)
@click.option(
    "--max-cost-usd", type=NumberType(0), help="Allow at most this cost per run, in US dollars."
)
@click.option(
    "--min-trials",
    type=click.IntRange(1),
    help="Require at least this many scored trials in each group.",
)
@click.option("--require-complete", is_flag=True, help="Require that every planned trial ran.")
@click.option(
    "--against", metavar="BASELINE", help="Compare with this job or experiment, task by task."
)
@click.option(
    "--max-drop", type=NumberType(0), default=0.0, show_default=True,
    help="Allow the mean to be at most this far below the baseline.",
)  # fmt: skip
@click.option(
    "--pass-mark", type=NumberType(), default=1.0, show_default=True,
    help="Smallest reward that counts as a pass.",
)  # fmt: skip
@click.option("--reward-key", help="Reward to use if trials have several.")
@click.option(
    "--ignore-error", "ignored", metavar="EXCEPTION", multiple=True,
    help="Do not count this exception as an error if the trial has a reward; can be "
    "repeated.",
)  # fmt: skip
@click.option(
    "--interval", type=click.Choice(list(_INTERVALS)), default="bootstrap", show_default=True,
    help="Method for the confidence interval of the mean, over tasks; student suits few "
    "tasks and needs proctor[stats].",
)  # fmt: skip
@click.option(
    "--planned", type=click.IntRange(1), help="Number of trials planned for an experiment."
)
@click.option(
    "--check-evidence", is_flag=True, help="Audit jobs, and read all evidence of a ledger."
)
@click.option("--junit", type=PATH, help="Write JUnit XML to this file.")
@click.option("--markdown", type=PATH, help="Write a Markdown summary to this file; - for stdout.")
@ledger_option
@sample_option
@json_option
def command(
    things: tuple[str, ...],
    min_mean: float | None,
    min_pass_rate: float | None,
    max_errors: MaxErrors | None,
    max_cost_usd: float | None,
    min_trials: int | None,
    require_complete: bool,
    against: str | None,
    max_drop: float,
    pass_mark: float,
    reward_key: str | None,
    ignored: tuple[str, ...],
    interval: str,
    planned: int | None,
    check_evidence: bool,
    junit: str | None,
    markdown: str | None,
    directory: str | None,
    as_json: bool,
) -> int:
    """Fail CI when a run misses a threshold.

    A run is a job directory, or an experiment in a ledger. The mean is harbor's: a trial without a
    reward counts as 0. An error is a trial without a reward, or with an exception. An unknown cost
    fails --max-cost-usd. Each run is checked separately, and so is each of its groups (agent,
    model, dataset).

    \b
    Exit codes. All misses are printed; the most serious one decides, in this order:
      5  damaged     the ledger or the evidence is not what was written
      7  unshown     a published number cannot be recomputed (--check-evidence)
      3  incomplete  trials are missing, or fewer than --min-trials
      4  errors      more errors than --max-errors
      1  score       a mean or pass rate below its minimum, or a drop beyond --max-drop
      6  cost        more than --max-cost-usd, or unknown
      0  met         every threshold is met
      2              wrong usage, or something that cannot be read as a run

    Example: proctor gate jobs/nightly --min-mean 0.5 --max-errors 5% --junit gate.xml
    """  # noqa: D301 - click's mark for lines that are kept as they are
    _check_options(as_json=as_json, junit=junit, markdown=markdown)
    limits = Limits(
        min_mean=min_mean,
        min_pass_rate=min_pass_rate,
        max_errors=max_errors,
        max_cost_usd=max_cost_usd,
        min_trials=min_trials,
        require_complete=require_complete,
        max_drop=max_drop if against is not None else None,
        pass_mark=pass_mark,
        reward_key=reward_key,
        ignored_errors=frozenset(ignored),
    )
    find_interval = _load_interval(interval)
    reader = _Reader(directory, check_evidence=check_evidence)
    baseline = None if against is None else reader.measure(against)
    judged = [
        judge(reader.measure(thing, planned), limits, baseline, find_interval=find_interval)
        for thing in things
    ]
    miss = gravest([check for each in judged for check in each.checks])
    page = render_markdown(judged, limits, miss)
    if junit is not None:
        write_file(Path(junit), render_junit(judged, limits), reader.read)
    if markdown is not None and markdown != STDOUT:
        write_file(Path(markdown), page.encode(), reader.read)
    _print(judged, miss, as_json=as_json, page=page if markdown == STDOUT else None)
    return miss.exit_code if miss else 0


def _load_interval(name: str) -> FindInterval:
    module, function = _INTERVALS[name]
    try:
        found: FindInterval = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("proctor"):
            raise
        raise InputError(
            f"--interval {name} needs {error.name}, which is not installed: "
            "pip install 'proctor[stats]'"
        ) from error
    return found


def _check_options(*, as_json: bool, junit: str | None, markdown: str | None) -> None:
    asked = [click.get_current_context().params[name] for name in _CONDITIONS]
    # A limit of 0 is a limit, although it is falsy.
    if all(value is None or value is False for value in asked):
        raise click.UsageError("no threshold given; pass one, such as --min-mean 0.5")
    check_companions({"max_drop": "against"})
    if junit == STDOUT:
        raise click.UsageError(
            "--junit is -; expected a file, because the verdict is printed to stdout"
        )
    if (
        junit is not None
        and markdown is not None
        and os.path.realpath(junit) == os.path.realpath(markdown)
    ):
        raise click.UsageError(f"--junit and --markdown are both {junit}; expected two files")
    if as_json and markdown == STDOUT:
        raise click.UsageError("--json cannot be combined with --markdown -: both are for stdout")


def _print(judged: list[Judged], miss: Miss | None, *, as_json: bool, page: str | None) -> None:
    if as_json:
        print_json(document_of(judged, miss))
    elif page is not None:
        send(page.rstrip("\n"))
        print_stderr(f"proctor: gate {render_verdict(miss)}")
    else:
        print_judged(judged, miss)


class _Reader:
    """Reads runs: a job if the path exists, else an experiment; with --ledger always the latter."""

    def __init__(self, directory: str | None, *, check_evidence: bool) -> None:
        self.directory = directory
        self.check_evidence = check_evidence
        # Directories that must not be written to.
        self.read: list[str] = []

    def measure(self, thing: str, planned: int | None = None) -> Measured:
        """Read and measure a run."""
        check_name(thing)
        if os.path.lexists(thing) and not self._is_sealed(thing):
            return self._measure_job(thing, planned)
        return self._measure_experiment(thing, planned)

    def _is_sealed(self, name: str) -> bool:
        """Whether a ledger was given, and has an experiment of this name."""
        if self.directory is None:
            return False
        try:
            with open_ledger(self.directory) as ledger:
                return is_sealed(ledger, name)
        except DamageError:
            # In a damaged ledger, what is not found may be what was damaged.
            return True

    def _measure_job(self, path: str, planned: int | None) -> Measured:
        check_job(path)
        if planned is not None:
            raise InputError(
                f"{path}: --planned is for experiments of a ledger; a job records how many "
                "trials were planned"
            )
        self.read.append(path)
        return measure_job(path, check_evidence=self.check_evidence, watch=reading_progress(path))

    def _measure_experiment(self, name: str, planned: int | None) -> Measured:
        place = choose_directory(self.directory)
        if self.directory is None and not place.exists():
            raise InputError(
                f"{name}: there is no such job directory, and no ledger at {place} that could "
                "hold an experiment of that name; --ledger or PROCTOR_LEDGER names one"
            )
        self.read.append(str(place))
        return measure_experiment(
            place,
            name,
            planned=planned,
            check_evidence=self.check_evidence,
            progress=make_progress(),
        )
