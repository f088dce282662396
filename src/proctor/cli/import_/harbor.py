"""`proctor import harbor`: imports the trials of harbor jobs."""

from functools import partial
from pathlib import Path

import click

from proctor.audit.job import audit_loaded
from proctor.cli.import_.taking import bring_in, print_reconciliation
from proctor.cli.ledger.options import extend_option, key_option, ledger_option
from proctor.cli.ledger.progress import make_progress
from proctor.cli.options import PATH
from proctor.cli.output import json_option
from proctor.cli.redaction import read_secrets, secret_option
from proctor.errors import JobError
from proctor.exchange.harbor_job import FoundJob, JobOptions, find_jobs, find_trials
from proctor.exchange.intake import Offer, refuse
from proctor.ledger.belonging import Admission


@click.command("harbor")
@click.argument("jobs", nargs=-1, required=True, type=PATH, metavar="JOB…")
@click.option(
    "--experiment",
    metavar="ID",
    help="Seal all trials under this experiment.  [default: each job's name]",
)
@extend_option
@click.option("--dataset-id", help="Dataset of the tasks, as name@version.")
@click.option(
    "--killed",
    "is_over",
    is_flag=True,
    help="The job has ended: import trials without a result as killed.",
)
@secret_option
@ledger_option
@key_option
@json_option
def command(
    jobs: tuple[str, ...],
    experiment: str | None,
    extend_experiment: bool,
    dataset_id: str | None,
    is_over: bool,
    secret_names: tuple[str, ...],
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Seal the trials of harbor jobs, each with all its files, without running anything.

    JOB is a job directory, or a directory of jobs. A record is made for every trial;
    trials run by proctor already have one. Trials that are already sealed are
    left unchanged, so a job can be imported again when more trials have ended. In a job that is not
    marked as finished, trials without a result are left for later, or imported as killed with
    --killed. `proctor export --format harbor` restores the files.

    Each job is audited as `proctor audit` does: the first line says whether its published numbers
    follow from the evidence. Jobs whose numbers do not follow are imported too.

    Exit code 3: trials were refused or left for later. 2: nothing was sealed.

    Example: proctor import harbor jobs/nightly
    """
    secrets = read_secrets(secret_names)
    asked = JobOptions(experiment=experiment, dataset_id=dataset_id, is_over=is_over)
    paths = _list_jobs(jobs)
    found = [_find(path, asked, is_one=len(paths) == 1) for path in paths]
    outcome = bring_in(
        [offer for job in found for offer in job.offers],
        directory,
        key_file,
        secrets=secrets,
        admission=None if extend_experiment else Admission(),
    )
    for job in found:
        outcome.later += job.later
        outcome.notes += job.notes
    audits = [audit_loaded(job.job) for job in found if job.job is not None]
    return print_reconciliation(
        outcome, noun="trial", as_json=as_json, ledger=directory, audits=audits
    )


def _list_jobs(paths: tuple[str, ...]) -> list[Path]:
    """Every job once, however often it is named."""
    jobs = [job for path in paths for job in find_jobs(Path(path))]
    return list({job.resolve(): job for job in jobs}.values())


def _find(job: Path, asked: JobOptions, *, is_one: bool) -> FoundJob:
    """The trials of a job; of several jobs, one that cannot be read does not stop the others."""
    progress = make_progress()
    try:
        return find_trials(job, asked, lambda done, total: progress("results read", done, total))
    except JobError as error:
        if is_one:
            raise
        return FoundJob([Offer(str(job), partial(refuse, error))])
