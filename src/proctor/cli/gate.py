"""`proctor gate`: checks runs against limits, and reports by exit code."""

import math
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from proctor.cli.ledger.options import choose_directory, ledger_option, open_ledger
from proctor.cli.ledger.progress import make_progress, reading_progress
from proctor.cli.options import PATH, STDOUT, Numeric, check_companions, sample_option
from proctor.cli.output import json_option, print_json, print_line, write_file
from proctor.cli.stdout import print_stderr, send
from proctor.errors import DamageError, InputError
from proctor.report.gate import output
from proctor.report.gate.judging import FindInterval, Limits, MaxErrors, gravest, judge
from proctor.report.gate.runs import Run, load_experiment_run, load_job_run
from proctor.report.runs import check_job, check_name, is_sealed

_MOST_DIGITS = 9


def _parse_errors(text: str) -> MaxErrors:
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return MaxErrors(count=int(text))
    return MaxErrors(share=float(text.removesuffix("%")) / (100 if text.endswith("%") else 1))


_NUMBER = Numeric("X", "a number", float, math.isfinite)
_FROM_0 = Numeric("X", "a number, 0 or more", float, lambda number: 0 <= number < math.inf)
_ERRORS = Numeric(
    "N|SHARE",
    "trials (3) or a share of them (0.05, 5%)",
    _parse_errors,
    lambda most: 0 <= most.share <= 1,
)
_THRESHOLDS = (
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
@click.option("--min-mean", type=_NUMBER, help="Require at least this mean in each group.")
@click.option("--min-pass-rate", type=_FROM_0, help="Require at least this share of passed trials.")
@click.option(
    "--max-errors",
    type=_ERRORS,
    help="Allow at most this many errors: a number of trials, or a share of them.",
)
@click.option(
    "--max-cost-usd", type=_FROM_0, help="Allow at most this cost per run, in US dollars."
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
    "--max-drop", type=_FROM_0, default=0.0, show_default=True,
    help="Allow the mean to be at most this far below the baseline.",
)  # fmt: skip
@click.option(
    "--pass-mark", type=_NUMBER, default=1.0, show_default=True,
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
    against: str | None,
    ignored: tuple[str, ...],
    interval: str,
    planned: int | None,
    check_evidence: bool,
    junit: str | None,
    markdown: str | None,
    directory: str | None,
    as_json: bool,
    **limits: Any,
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
    _check_options(junit, markdown, as_json=as_json)
    chosen = Limits(ignored_errors=frozenset(ignored), **limits)
    find_interval = _load_interval(interval)
    # Directories that must not be written to.
    read: list[str] = []

    def load(thing: str, planned: int | None = None) -> Run:
        return _load(thing, directory, read, planned=planned, check_evidence=check_evidence)

    baseline = None if against is None else load(against)
    runs = [
        judge(load(thing, planned), chosen, baseline, find_interval=find_interval)
        for thing in things
    ]
    miss = gravest([check for each in runs for check in each.checks])
    page = output.render_markdown(runs, miss)
    if junit is not None:
        write_file(Path(junit), output.render_junit(runs), read)
    if markdown is not None and markdown != STDOUT:
        write_file(Path(markdown), page.encode(), read)
    if as_json:
        print_json(output.make_document(runs, miss))
    elif markdown == STDOUT:
        send(page.rstrip("\n"))
        print_stderr(f"proctor: gate {output.render_verdict(miss)}")
    else:
        for line in output.render_text(runs, miss):
            print_line(line)
    return miss.exit_code if miss else 0


def _check_options(junit: str | None, markdown: str | None, *, as_json: bool) -> None:
    given = click.get_current_context().params
    # A limit of 0 is a limit, although it is falsy.
    if all(given[name] is None or given[name] is False for name in _THRESHOLDS):
        raise click.UsageError("no threshold given; pass one, such as --min-mean 0.5")
    check_companions({"max_drop": "against"})
    if junit == STDOUT:
        raise click.UsageError(
            "--junit is -; expected a file, because the verdict is printed to stdout"
        )
    if junit and markdown and os.path.realpath(junit) == os.path.realpath(markdown):
        raise click.UsageError(f"--junit and --markdown are both {junit}; expected two files")
    if as_json and markdown == STDOUT:
        raise click.UsageError("--json cannot be combined with --markdown -: both are for stdout")


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


def _load(
    thing: str,
    directory: str | None,
    read: list[str],
    *,
    planned: int | None,
    check_evidence: bool,
) -> Run:
    """Read a run: a job if the path exists, unless the given ledger has such an experiment.

    Adds its place to `read`.
    """
    check_name(thing)
    if os.path.lexists(thing) and not (directory and _is_in(directory, thing)):
        check_job(thing)
        if planned is not None:
            raise InputError(
                f"{thing}: --planned is for experiments of a ledger; a job records how many "
                "trials were planned"
            )
        read.append(thing)
        return load_job_run(thing, check_evidence=check_evidence, watch=reading_progress(thing))
    place = choose_directory(directory)
    if directory is None and not place.exists():
        raise InputError(
            f"{thing}: there is no such job directory, and no ledger at {place} that could "
            "hold an experiment of that name; --ledger or PROCTOR_LEDGER names one"
        )
    read.append(str(place))
    return load_experiment_run(
        place, thing, planned=planned, check_evidence=check_evidence, progress=make_progress()
    )


def _is_in(ledger: str, experiment: str) -> bool:
    try:
        with open_ledger(ledger) as opened:
            return is_sealed(opened, experiment)
    except DamageError:
        # In a damaged ledger, what is not found may be what was damaged.
        return True
