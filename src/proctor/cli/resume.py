"""`proctor resume`: runs the trials of a job that have no result, and deletes nothing."""

import os
import sys
from pathlib import Path

import click

from proctor.cli.fetching import make_report
from proctor.cli.options import PATH, check_apart
from proctor.cli.output import json_option
from proctor.cli.running.display import leave_at_once
from proctor.cli.running.harbor_options import ResumeCommand
from proctor.cli.running.host import Consent
from proctor.cli.running.images import choose_fetching
from proctor.cli.running.ledger import find_directory
from proctor.cli.running.options import (
    AUTO,
    CONCURRENCY,
    INSECURE_HELP,
    LOST_HELP,
    OFFLINE_HELP,
    ON_HELP,
    whole_number,
)
from proctor.cli.running.pairs import parse_variables
from proctor.cli.running.place import LOCAL, Place, choose_place
from proctor.cli.running.preview import show_preview
from proctor.cli.running.watched import Printing, always_with_line, watch_job
from proctor.harbor.stats import CANCELLED
from proctor.job.fetching import say_nothing
from proctor.job.job import resume_job
from proctor.job.options import MOST_LOST, ResumeOptions
from proctor.job.preview import preview_resume


@click.command("resume", cls=ResumeCommand)
@click.argument("job", type=PATH)
@click.option(
    "--also",
    "-f",
    multiple=True,
    metavar="TYPE",
    help=f"Also rerun trials that ended with this exception.  [always: {CANCELLED}]",
)
@click.option(
    "-n",
    "--n-concurrent",
    type=CONCURRENCY,
    metavar="N|auto",
    help="Number of trials to run at once.  [default: as before]",
)
@click.option("--on", type=Place(), default=LOCAL, metavar=Place.name, help=ON_HELP)
@click.option("--insecure-cluster", is_flag=True, help=INSECURE_HELP)
@click.option("--max-lost", type=whole_number(0), default=MOST_LOST, metavar="N", help=LOST_HELP)
@click.option(
    "--ae", "secrets", multiple=True, metavar="K=V", help="Supply the value of a redacted variable."
)
@click.option("--ledger", type=PATH, help="Seal trials into this ledger.  [default: as before]")
@click.option("--no-ledger", is_flag=True, help="Do not seal trials into a ledger.")
@click.option("--key", type=PATH, help="Signing key.  [default: PROCTOR_KEY, your own key]")
@click.option("--offline", is_flag=True, help=OFFLINE_HELP)
@click.option("--dry-run", is_flag=True, help="Show what would be run, kept or redone, and why.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
@click.option(
    "--result-line", is_flag=True, help="Print the result line last, and use harbor's exit codes."
)
@json_option
def command(
    job: str,
    also: tuple[str, ...],
    n_concurrent: int | str | None,
    on: str,
    insecure_cluster: bool,
    max_lost: int,
    secrets: tuple[str, ...],
    ledger: str | None,
    no_ledger: bool,
    key: str | None,
    offline: bool,
    dry_run: bool,
    quiet: bool,
    result_line: bool,
    as_json: bool,
) -> int:
    """Resume a stopped job.

    The job may have been killed, or started by harbor. Trials with a result are kept, trials
    without one are run. A trial that is run again keeps what its earlier attempt left in
    attempts/N. If a task, agent or image has changed since, a new trial is added beside the old
    one. Secrets that are redacted in the job's files must be given with --ae or as environment
    variables; a dry run needs none. Trials that a killed run left unsealed are sealed.

    Exit codes are those of `proctor run`.

    Example: proctor resume jobs/nightly --also EnvironmentStartTimeoutError
    """
    check_apart("as_json", "result_line")
    check_apart("ledger", "no_ledger")
    place = choose_place(on, is_insecure=insecure_cluster)
    options = ResumeOptions(
        also=frozenset({CANCELLED, *also}),
        n_concurrent=n_concurrent if isinstance(n_concurrent, int) else None,
        is_auto=n_concurrent == AUTO or (place is not None and n_concurrent is None),
        secrets=parse_variables("--ae", secrets),
        invocation=sys.argv,
        stop_at_once=leave_at_once,
        # Consent was given when the job was started; missing variables are still reported.
        approve=Consent(os.environ, frozenset(), yes=True, remedy="export what is missing"),
        ledger=find_directory(ledger, os.environ) if ledger and not dry_run else None,
        key_file=Path(key).absolute() if key else None,
        is_sealed=not no_ledger,
        open_executor=place,
        max_lost=max_lost,
        report=say_nothing if quiet else make_report(),
        fetching=choose_fetching(os.environ, offline=offline, dry_run=dry_run, quiet=quiet),
    )
    directory, printing = Path(job), Printing(quiet=quiet, as_json=as_json, result_line=result_line)
    if dry_run:
        return show_preview(preview_resume(directory, options), as_json=as_json)
    with always_with_line(result_line=result_line):
        return watch_job(
            lambda watch: resume_job(directory, options, watch), directory.resolve().name, printing
        )
