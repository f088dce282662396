"""`proctor audit --rerun`: runs trials again and reports the result of each."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.cli.ledger.options import choose_directory
from proctor.cli.output import print_json, print_line
from proctor.cli.running.display import Silent, leave_at_once, say
from proctor.cli.running.host import list_needs
from proctor.cli.running.images import choose_fetching
from proctor.errors import InputError
from proctor.files import replace_file
from proctor.harbor.configs import JobConfig
from proctor.harbor.render import render_json
from proctor.job.job import run_job
from proctor.job.options import INTERRUPTED, JobOptions, JobOutcome
from proctor.job.settings import Settings
from proctor.rerun.from_claim import load_claim_trials
from proctor.rerun.from_job import load_job_trials
from proctor.rerun.plan import find_usable
from proctor.rerun.rerunning import RerunOptions, Reruns, Trials, make_directory, run_again
from proctor.rerun.sample import choose_trials
from proctor.rerun.verdict import Rerun, Verdict, find_exit_code
from proctor.sentence import count_of
from proctor.task.directory import Task

ACCOUNT = "reruns.json"
"""The JSON document so far, beside the new jobs."""


def rerun(jobs: Sequence[str], given: Mapping[str, Any], *, as_json: bool) -> int:
    """Run a sample of a job or a claim again; returns the exit code."""
    if len(jobs) != 1:
        raise click.UsageError(f"--rerun takes one job or one claim; {len(jobs)} were given")
    environment = given["environment"]
    if environment is not None and environment not in find_usable():
        known = ", ".join(find_usable())
        raise click.UsageError(f"--env is {environment!r}; expected one of {known}")
    if given["base"] is not None and environment not in (None, "sandbox"):
        raise click.UsageError("--base requires --env sandbox")
    tasks = [Path(place) for place in given["task_dirs"]]
    for place in tasks:
        if not place.is_dir():
            raise InputError(f"--tasks {place}: no such directory; expected a directory with tasks")
    trials = _load_trials(jobs[0], given["ledger_dir"])
    _check_apart(Path(given["jobs_dir"]), jobs[0])
    names = choose_trials(trials.names, given["rerun"], given["seed"])
    directory = make_directory(Path(given["jobs_dir"]), trials.title, datetime.now(UTC))
    account = _Account(
        audited=jobs[0],
        seed=given["seed"],
        trials=len(trials.names),
        withheld=trials.n_withheld,
        sample=names,
        directory=directory,
    )
    options = RerunOptions(
        directory=directory,
        tasks=tasks,
        agent_tree=Path(given["agent_tree"]).absolute() if given["agent_tree"] else None,
        environment=environment,
        base=given["base"],
        run_job=_Runner(yes=given["yes"], offline=given["offline"]),
        began=_Counter(len(names)),
        ended=account.write,
    )
    with contextlib.redirect_stdout(sys.stderr):
        done = asyncio.run(run_again(trials, names, options))
    if done.interrupted:
        # A second Ctrl-C while cleaning up ends without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    kept = _keep(directory)
    if as_json:
        print_json(account.describe(done, kept))
    else:
        _print(account, done, kept)
    return INTERRUPTED if done.interrupted else find_exit_code(done.reruns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """The results of all reruns."""

    audited: str
    seed: str
    trials: int
    """The number of trials to choose from."""
    withheld: int
    """The number of withheld trials, which cannot be chosen."""
    sample: Sequence[str]
    directory: Path

    def describe(self, done: Reruns, kept: str | None) -> dict[str, object]:
        """The result as JSON; `kept` is the directory of the new jobs, if any."""
        return {
            "audited": self.audited,
            "seed": self.seed,
            "trials": self.trials,
            "withheld": self.withheld,
            "sample": list(self.sample),
            "directory": kept,
            "interrupted": done.interrupted,
            "reruns": [msgspec.to_builtins(rerun) for rerun in done.reruns],
        }

    def write(self, reruns: Sequence[Rerun]) -> None:
        """Write the results so far beside the new jobs, so that a kill does not lose them."""
        if not any(self.directory.iterdir()):
            return
        is_all = len(reruns) == len(self.sample)
        known = Reruns(list(reruns), interrupted=not is_all)
        document = self.describe(known, str(self.directory))
        try:
            replace_file(self.directory / ACCOUNT, render_json(document, indent=2).encode())
        except OSError as error:
            say(f"{self.directory / ACCOUNT}: cannot be written: {error.strerror}")


def _load_trials(path: str, ledger: str | None) -> Trials:
    if Path(path).is_dir():
        if ledger is not None:
            raise click.UsageError("--ledger requires a claim; a job contains its evidence")
        return load_job_trials(path)
    thing = find_file_kind(path)
    if thing is not FileKind.CLAIM:
        raise InputError(f"{path}: a {thing}; expected a job directory, or a claim")
    return load_claim_trials(path, choose_directory(ledger))


def _check_apart(jobs_dir: Path, audited: str) -> None:
    place = Path(os.path.realpath(jobs_dir))
    if Path(audited).is_dir() and place.is_relative_to(os.path.realpath(audited)):
        raise InputError(f"{jobs_dir}: inside {audited}; the audited job is never written to")


def _keep(directory: Path) -> str | None:
    """The directory, or None if it is empty: then it is removed."""
    try:
        directory.rmdir()
    except OSError:
        return str(directory)
    return None


class _Counter:
    """Prints which trial is being run."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def __call__(self, name: str) -> None:
        self._done += 1
        say(f"[{self._done}/{self._total}] {name}")


class _Runner:
    """Runs the job of one trial, without sealing it."""

    def __init__(self, *, yes: bool, offline: bool) -> None:
        self._yes = yes
        self._offline = offline

    async def __call__(
        self, config: JobConfig, settings: Settings, image: str | None
    ) -> JobOutcome:
        """Run the job to its end, on the recorded image."""
        options = JobOptions(
            config=config,
            settings=settings,
            invocation=sys.argv,
            host=os.environ,
            environment_why="the one on record, or --env",
            stop_at_once=leave_at_once,
            approve=self._approve,
            fetching=choose_fetching(os.environ, offline=self._offline, recorded=image),
        )
        return await run_job(options, Silent())

    def _approve(self, tasks: Sequence[Task], config: JobConfig) -> None:
        needs = list_needs((task.config for task in tasks), config)
        if needs and not self._yes:
            wanted = ", ".join(dict.fromkeys(need.variable for need in needs))
            raise InputError(f"its task requires host variables: {wanted}; pass --yes to allow")


def _print(account: _Account, done: Reruns, kept: str | None) -> None:
    chosen = f"{len(account.sample)} of {count_of(account.trials, 'trial')}"
    print_line(f"{account.audited}: {chosen} chosen to run again, seed {account.seed}")
    width = max(len(verdict) for verdict in Verdict)
    for each in done.reruns:
        print_line(f"  {each.verdict:{width}}  {each.trial}: {each.reason}")
        for line in _details(each):
            print_line(f"    {line}")
    if account.withheld:
        gone = count_of(account.withheld, "trial")
        print_line(f"  withheld in the claim: {gone}, not replayable and not sampled")
    if done.interrupted:
        missing = len(account.sample) - len(done.reruns)
        print_line(f"  interrupted: {count_of(missing, 'trial')} not run again")
    print_line("nothing was run" if kept is None else f"kept in {kept}")


def _details(rerun: Rerun) -> list[str]:
    lines = []
    if rerun.compared is not None and (first := rerun.compared.first) is not None:
        lines.append(f"step {first.step}: {first.command!r}")
        lines.append(f"  {first.what} then: {first.then!r}")
        lines.append(f"  {first.what} now:  {first.now!r}")
        rest = rerun.compared.compared - rerun.compared.equal - 1
        if rest:
            lines.append(f"  and {rest} more of {rerun.compared.compared} differ")
    if rerun.exception_now is not None:
        lines.append(f"the new trial ended in {rerun.exception_now}")
    return [*lines, *(f"note: {note}" for note in rerun.notes)]
