"""`proctor score`: recomputes a job's scores from its evidence."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec.structs import asdict

from proctor.audit.certificate import Certificate, make_certificate, render_certificate
from proctor.audit.explain import explain
from proctor.audit.scoring import Scoring, score_jobs
from proctor.cli.ledger.progress import reading_progress
from proctor.cli.options import PATH
from proctor.cli.output import (
    json_option,
    print_json,
    print_line,
    write_file,
)
from proctor.cli.tables import (
    count_group,
    render_group,
    render_metric,
    render_parts,
    render_passes,
)
from proctor.errors import MixedJobsError
from proctor.harbor.job import Job, load_job
from proctor.harbor.stats import Group, stats_document
from proctor.reward.profile import PROFILES, Profile
from proctor.sentence import printable


@click.command("score")
@click.argument("jobs", nargs=-1, required=True, type=PATH)
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help="Scoring rules.  [default: those of the harbor version in lock.json]",
)
@click.option("--explain", "explained", is_flag=True, help="List every operand at full precision.")
@click.option("--certificate", type=PATH, help="Write every operand and result to this file.")
@click.option(
    "--allow-mixed",
    is_flag=True,
    help="Score jobs together even if their attempts, tasks or limits differ.",
)
@click.option("--run-metric-scripts", is_flag=True, help="Run the job's own metric scripts.")
@json_option
def command(
    jobs: tuple[str, ...],
    profile: str | None,
    explained: bool,
    certificate: str | None,
    allow_mixed: bool,
    run_metric_scripts: bool,
    as_json: bool,
) -> int:
    """Recompute a job's scores from its evidence.

    Rewards are read from the reward files if verification ended without an exception, else from the
    trial results. Several JOBS are scored as one, in the given order. Nothing is written into a
    job, and nothing in it is run unless you ask for it.

    Exit code 3: done, but some planned trials have no reward.

    Example: proctor score jobs/nightly --explain
    """
    rules = PROFILES[profile] if profile else None
    loaded = [load_job(path, rules, watch=reading_progress(path)) for path in jobs]
    scoring = score_jobs(
        loaded, _one_profile(loaded), allow_mixed=allow_mixed, run_scripts=run_metric_scripts
    )
    certified = make_certificate(scoring) if explained or certificate else None
    if certificate and certified:
        _write_certificate(Path(certificate), certified, jobs)
    lines = list(explain(certified)) if explained and certified else None
    if as_json:
        print_json(_document(scoring, lines))
    else:
        _print(scoring, lines)
    return 3 if scoring.unscored else 0


def _one_profile(jobs: Sequence[Job]) -> Profile:
    """The rules by which all of the jobs were read."""
    used = {job.profile.name: job for job in jobs}
    if len(used) > 1:
        read = ", ".join(f"{job.directory} by {name}" for name, job in used.items())
        raise MixedJobsError(
            f"the jobs were run by releases of harbor with different scoring rules: {read}. Pass "
            "--profile to score all of them by the same rules"
        )
    return jobs[0].profile


def _write_certificate(path: Path, certificate: Certificate, jobs: Sequence[str]) -> None:
    write_file(path, render_certificate(certificate), jobs)
    click.echo(f"certificate written to {printable(str(path))}", err=True)


def _print(scoring: Scoring, lines: list[str] | None) -> None:
    names = ", ".join(job.name for job in scoring.jobs)
    print_line(f"{names}, scored by {scoring.profile.name}")
    for group in scoring.table.groups.values():
        print_line()
        for line in render_group(group.key, count_group(group), _values(scoring, group.key)):
            print_line(line)
    print_line()
    _print_basis(scoring)
    for line in [*(f"note: {note}" for note in scoring.notes), *(lines or ())]:
        print_line(line)


def _print_basis(scoring: Scoring) -> None:
    for line in render_parts(scoring.denominators):
        print_line(line)
    bases = Counter(str(found.basis) for job in scoring.jobs for found in job.trials)
    print_line(f"rewards taken from: {', '.join(f'{k} {n}' for k, n in bases.items()) or '-'}")


def _values(scoring: Scoring, key: str) -> Iterator[tuple[str, str]]:
    for metric in scoring.metrics[key]:
        entry, name = metric.entry, metric.declared.name
        for label, value in (entry or {}).items():
            yield (name if label == name else f"{name} of {label}", render_metric(value))
    yield from render_passes(scoring.table.groups[key], scoring.stats.evals[key].pass_at_k)


def _document(scoring: Scoring, lines: list[str] | None) -> dict[str, object]:
    document: dict[str, object] = {
        "profile": scoring.profile.name,
        "jobs": [
            {
                "name": job.name,
                "directory": job.directory,
                "finished": job.finished,
                "order": str(job.ordered.basis),
                "broken": [asdict(problem) for problem in job.broken],
                "unfinished": list(job.unfinished),
            }
            for job in scoring.jobs
        ],
        "denominators": asdict(scoring.denominators),
        "stats": stats_document(scoring.stats),
        "carried_over": ["n_cancelled_trials", "n_retries"],
        "groups": {
            key: _group_document(scoring, group) for key, group in scoring.table.groups.items()
        },
        "trials": list(_trial_documents(scoring)),
        "outcome": asdict(scoring.summary),
        "notes": scoring.notes,
    }
    if lines is not None:
        document["explain"] = lines
    return document


def _group_document(scoring: Scoring, group: Group) -> dict[str, object]:
    metrics = [
        {
            "metric": metric.declared.name,
            "origin": str(metric.origin),
            "inferred": metric.declared.inferred,
            "detail": metric.detail,
            "value": metric.entry,
        }
        for metric in scoring.metrics[group.key]
    ]
    return {"denominators": count_group(group), "metrics": metrics}


def _trial_documents(scoring: Scoring) -> Iterator[dict[str, object]]:
    for job in scoring.jobs:
        for found in job.trials:
            trial = found.trial
            yield {
                "trial": trial.name,
                "task": trial.task,
                "rewards": trial.verdict.rewards if trial.verdict else None,
                "basis": str(found.basis),
                "exception": trial.exception,
            }
