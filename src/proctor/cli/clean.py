"""`proctor clean`: removes what killed runs left behind."""

from collections.abc import Iterator

import click

from proctor.cli.output import json_option, print_json, print_line
from proctor.cluster.home import sweep
from proctor.environments.kinds import reap_everything
from proctor.environments.sandbox.reap import Reaped
from proctor.ledger.derived import remove_unused
from proctor.sentence import count_of


@click.command("clean")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, without removing it.")
@json_option
def command(dry_run: bool, as_json: bool) -> int:
    """Remove what killed runs left behind.

    Removes the files that their sandboxes wrote, their control groups and network helpers, and
    their containers in the Docker engine that docker connects to. What a killed trial left in /logs
    and as its trajectory is evidence, and is copied into the trial first; what cannot be copied is
    left in place. Running jobs are not touched. Every run does the same for its own type of
    environment when it starts. Also removes the temporary files of a killed `task try --shell` and
    cached indexes of deleted ledgers. On a machine of a cluster, removes copies of tasks and
    agents that no trial has used for 30 days, and what killed trials left in its cache, after their
    job has had two minutes to fetch it.

    Example: proctor clean --dry-run
    """
    reaped = reap_everything(dry_run=dry_run)
    # Afterwards: evidence of their sandboxes was just copied into trials.
    swept = sweep(dry_run=dry_run)
    reaped.sessions += swept.removed
    reaped.kept += swept.kept
    reaped.kept += [
        f"{place}: the job of this killed trial may still fetch it; clean again in two minutes"
        for place in swept.waiting
    ]
    ledgers = [str(path) for path in remove_unused(dry_run=dry_run)]
    if as_json:
        print_json({**_document(reaped, dry_run=dry_run), "indexes": ledgers})
        return 0
    if not ledgers or not reaped.is_empty:
        for line in _lines(reaped, dry_run=dry_run):
            print_line(line)
    if ledgers:
        which = ledgers[0] if len(ledgers) == 1 else f"{len(ledgers):,} ledgers"
        deed = "would be removed" if dry_run else "removed"
        print_line(f"{deed}: cached indexes of {which}, deleted since; --json lists them")
    return 0


def _document(reaped: Reaped, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "runs": reaped.runs,
        "scratch": [str(path) for path in reaped.sessions],
        "processes": reaped.processes,
        "cgroups": [str(path) for path in reaped.cgroups],
        "containers": reaped.containers,
        "images": reaped.images,
        "salvaged": [str(path) for path in reaped.salvaged],
        "kept": reaped.kept,
    }


def _lines(reaped: Reaped, *, dry_run: bool) -> Iterator[str]:
    if reaped.is_empty:
        yield "nothing to clean"
        return
    deed = "would be " if dry_run else ""
    if reaped.runs:
        yield f"{count_of(len(reaped.runs), 'killed run')} found"
    yield from (f"{deed}copied into its trial: {path}" for path in reaped.salvaged)
    yield from (f"{deed}deleted: {path}" for path in reaped.sessions)
    yield from (f"{deed}removed: {path}" for path in reaped.cgroups)
    yield from (f"{deed}removed: container {name}" for name in reaped.containers)
    yield from (f"{deed}removed: image {name}" for name in reaped.images)
    yield from (f"{deed}killed: {process}" for process in reaped.processes)
    yield from (f"kept: {sentence}" for sentence in reaped.kept)
