"""`proctor task try`: runs a task with and without its solution, and reports what is wrong with it.

The trials run as those of `proctor run` do, in a directory of their own. Nothing is sealed.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import click
import msgspec

from proctor.cli.options import PATH, check_apart
from proctor.cli.output import check_new, json_option, print_json, print_line
from proctor.cli.running.display import leave_at_once, watching
from proctor.cli.running.host import Consent
from proctor.cli.running.images import choose_fetching
from proctor.cli.running.report import shorten_path
from proctor.cli.task.options import find_task, make_environment, task_options
from proctor.cli.task.shell import open_shell
from proctor.diagnostic import Diagnostic
from proctor.exchange.traced_files import find_in_files
from proctor.harbor.configs import AgentConfig, JobConfig, TaskConfig
from proctor.job.flakes import Flakes
from proctor.job.job import run_job
from proctor.job.options import INTERRUPTED, JobOptions, JobOutcome
from proctor.job.settings import Settings
from proctor.sentence import count_of, render_figure
from proctor.task.check import check_task
from proctor.task.terminal_bench import is_terminal_bench_task
from proctor.traces.failures import (
    Failure,
    find_failures,
    has_failed,
    read_failures,
    read_logs,
)
from proctor.traces.traced_trial import TracedTrial
from proctor.trial.finding import FindingCode, Level, level_of

_ORACLE, _NOP = "oracle", "nop"
_EXIT_CODE = "exit-code.txt"
_TESTS_FLAKY = "tests-flaky"
_FLAKY_FINDINGS = (FindingCode.VERIFIER_FLAKY, FindingCode.CLEAN_ROOM_DIFFERS)
_MOST_ATTEMPTS = 100
# Verifications of each state beyond the one that counts: if they differ, the tests are flaky, and
# not the solution.
_AGAIN = 1


@click.command("try")
@task_options
@click.option(
    "-k",
    "--n-attempts",
    type=click.IntRange(1, _MOST_ATTEMPTS),
    default=3,
    show_default=True,
    help="Attempts with and without the solution.",
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    metavar="DIR",
    help="Keep the trials in this new directory.  [default: a temporary one, kept if they show a "
    "problem]",
)
@click.option(
    "--shell",
    is_flag=True,
    help="Open a shell in the environment, as an agent finds it, instead of running the task.",
)
@json_option
def command(
    task: str,
    environment: str,
    base: str | None,
    offline: bool,
    builder: str | None,
    yes: bool,
    n_attempts: int,
    output: str | None,
    shell: bool,
    as_json: bool,
) -> int:
    """Run a task with and without its solution, and report what is wrong with it.

    The agent `oracle` runs solution/solve.sh and must pass in every attempt; the agent `nop` does
    nothing and must not pass. The tests run twice on the files that an attempt left, and must give
    the same result. The image that the task names is pulled if it is missing. Nothing is written to
    your ledger.

    With --shell, opens a shell where an agent starts: in the working directory, as the agent's
    user, with the task's variables and network. In a task of several steps, it is set up for the
    first one. Commands can be given on standard input too. Everything is removed when the shell
    ends. The command exits with the shell's exit code.

    Exit code 0: the task is fine. 1: something is wrong with it. 2: wrong usage or bad input.

    Example: proctor task try tasks/fix-bug

    Example: echo 'ls -la' | proctor task try tasks/fix-bug --shell
    """
    directory = find_task(task)
    in_environment = make_environment(environment, base, builder, os.environ)
    fetching = choose_fetching(os.environ, offline=offline)
    if shell:
        for name in ("n_attempts", "output", "as_json"):
            check_apart("shell", name)
        return open_shell(directory, in_environment, task, fetching, yes=yes)
    config = JobConfig(
        job_name="try",
        n_attempts=n_attempts,
        agents=[AgentConfig(name=_ORACLE), AgentConfig(name=_NOP)],
        tasks=[TaskConfig(path=directory.absolute())],
        environment=in_environment,
    )
    # Tasks in the older format are converted when they are run, and are not checked as such.
    checked = [] if is_terminal_bench_task(directory) else check_task(directory)
    report = Report(task, environment)
    report.problems += [Problem(what=each) for each in checked if each.is_problem]
    report.notes += [each for each in checked if not each.is_problem]
    if not report.problems:
        with _kept_if(_make_place(output), lambda: bool(output or report.problems)) as place:
            # The report lists them in the end.
            known = frozenset(f"{directory.absolute().name}: {note}" for note in report.notes)
            options = JobOptions(
                config=config.model_copy(update={"jobs_dir": place}),
                settings=Settings(verify_again=_AGAIN),
                invocation=sys.argv,
                stop_at_once=leave_at_once,
                approve=Consent(os.environ, frozenset(), yes=yes, remedy="export what is missing"),
                known=known,
                fetching=fetching,
            )
            outcome = _run(options, title=task)
            if outcome.interrupted:
                return INTERRUPTED
            _judge(outcome, report)
    if as_json:
        print_json(_describe(report))
    else:
        for line in _render(report):
            print_line(line)
    return 1 if report.problems else 0


def _make_place(output: str | None) -> Path:
    if output is None:
        return Path(tempfile.mkdtemp(prefix="proctor-try-"))
    place = Path(output).absolute()
    check_new(place)
    return place


@contextmanager
def _kept_if(place: Path, is_kept: Callable[[], bool]) -> Iterator[Path]:
    """Remove a directory in the end, unless its contents are still wanted."""
    is_whole = False
    try:
        yield place
        is_whole = True
    finally:
        if not is_whole or not is_kept():
            shutil.rmtree(place, ignore_errors=True)


def _run(options: JobOptions, *, title: str) -> JobOutcome:
    # The verdict says all of it: progress is for somebody who waits.
    with watching(title, quiet=not (sys.stderr and sys.stderr.isatty())) as watch:
        return asyncio.run(run_job(options, watch))


# What the trials show


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong with a task, and the output that shows it."""

    what: Diagnostic
    reasons: tuple[Failure, ...] = ()
    trial: str | None = None
    """The directory of the trial that shows it."""


@dataclass(frozen=True, slots=True)
class AgentTrials:
    """The trials of one agent."""

    agent: str
    trials: list[TracedTrial]

    @property
    def rewards(self) -> list[float | None]:
        """The reward of each trial; None if it was not scored."""
        return [_find_reward(trial) for trial in self.trials]

    @property
    def n_passed(self) -> int:
        """Number of trials that passed."""
        return sum(not has_failed(reward) for reward in self.rewards)

    def find(self, is_wanted: Callable[[float | None], bool]) -> TracedTrial | None:
        """The first trial whose reward is of the kind."""
        pairs = zip(self.trials, self.rewards, strict=True)
        return next((trial for trial, reward in pairs if is_wanted(reward)), None)

    def __str__(self) -> str:
        shown = ", ".join("none" if each is None else render_figure(each) for each in self.rewards)
        return f"{self.n_passed} of {count_of(len(self.trials), 'attempt')} passed ({shown})"


@dataclass(slots=True)
class Report:
    """What was found out about a task."""

    task: str
    environment: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    agents: list[AgentTrials] = field(default_factory=list)
    flakes: Flakes | None = None

    def has(self, code: str) -> bool:
        """Whether there is a problem with this code."""
        return any(problem.what.code == code for problem in self.problems)

    def add(
        self, code: str, message: str, trial: TracedTrial | None = None, *, explained: bool = False
    ) -> None:
        """Add a problem that a trial shows; `explained` adds what failed in it."""
        reasons = tuple(_explain(trial)) if trial and explained else ()
        name = trial.name if trial else None
        self.problems.append(Problem(what=Diagnostic(code, message), reasons=reasons, trial=name))


def _explain(trial: TracedTrial) -> Iterator[Failure]:
    """What failed in a trial: its exceptions, the solution's own error, and the tests."""
    failures = read_failures(trial, _find_reward(trial))
    yield from failures.exceptions
    # Written only if the solution exits with an error, which harbor does not count as one.
    for name in trial.files:
        if PurePosixPath(name).name == _EXIT_CODE:
            yield from _explain_exit(trial, name)
    yield from failures.tests


def _explain_exit(trial: TracedTrial, name: str) -> Iterator[Failure]:
    folder = PurePosixPath(name).parent
    codes, *outputs = read_logs(trial, [name, f"{folder}/oracle.txt"], in_steps=False)
    title = f"solution/solve.sh exited with code {codes.text.strip()}"
    for output in outputs:
        for found in find_failures(output.text)[-1:]:
            yield msgspec.structs.replace(found, title=title, file=output.name)


def _find_reward(trial: TracedTrial) -> float | None:
    """The reward of a trial; of several without a main one, the lowest."""
    if trial.record is None:
        return None
    evaluation = trial.record.evaluation
    if evaluation.reward is not None:
        return evaluation.reward
    values = (evaluation.breakdown or {}).values()
    return min((each for each in values if isinstance(each, int | float)), default=None)


def _judge(outcome: JobOutcome, report: Report) -> None:
    """Add what the trials of a job show about the task."""
    found = list(find_in_files(str(outcome.directory)))
    oracle, nop = (
        AgentTrials(name, [each for each in found if _find_agent(each) == name])
        for name in (_ORACLE, _NOP)
    )
    report.agents = [oracle, nop]
    report.flakes = outcome.flakes
    _judge_tests(outcome.flakes, report)
    if not _judge_start(oracle, nop, report):
        _judge_oracle(oracle, report)
        _judge_nop(nop, report)
    _judge_findings(oracle.trials, report)


def _find_agent(trial: TracedTrial) -> str | None:
    return trial.record.agent.adapter if trial.record else None


def _judge_start(oracle: AgentTrials, nop: AgentTrials, report: Report) -> bool:
    """Whether no trial could be run, for the same reason."""
    exceptions = {
        (each.title, each.line)
        for trial in (*oracle.trials, *nop.trials)
        for each in read_failures(trial, None).exceptions
    }
    if len(exceptions) != 1 or any(each is not None for each in (*oracle.rewards, *nop.rewards)):
        return False
    message = "no attempt could be run to its end, with or without the solution"
    report.add("no-reward", message, nop.trials[0], explained=True)
    return True


def _judge_oracle(oracle: AgentTrials, report: Report) -> None:
    for trial in oracle.trials:
        # Of a step that raised an exception, harbor may count the steps before it alone.
        if not has_failed(_find_reward(trial)) and read_failures(trial, None).exceptions:
            message = "the solution passes although an exception ended it early"
            report.add("oracle-errored", message, trial, explained=True)
            break
    failed = oracle.find(has_failed)
    if failed is None:
        return
    if not oracle.n_passed:
        message = f"the solution fails: {oracle}; expected a reward of 1 in each"
        report.add("oracle-failed", message, failed, explained=True)
    elif not report.has(_TESTS_FLAKY):
        # Tests that disagree with themselves explain it; the solution need not be at fault.
        message = f"the solution fails intermittently: {oracle}; expected a reward of 1 in each"
        report.add("oracle-flaky", message, failed, explained=True)


def _judge_nop(nop: AgentTrials, report: Report) -> None:
    if nop.n_passed:
        message = f"doing nothing passes: {nop}; expected a reward below 1, best 0"
        report.add("nop-passed", message, nop.find(lambda reward: not has_failed(reward)))
    if unscored := nop.find(lambda reward: reward is None):
        message = (
            "doing nothing leaves no reward, so that the trial is errored; expected tests that "
            "write 0 when the work is missing"
        )
        report.add("nop-unscored", message, unscored, explained=True)
    elif not nop.n_passed and any(nop.rewards):
        message = f"doing nothing gets part of the reward: {nop}"
        report.notes.append(Diagnostic("nop-rewarded", message, is_problem=False))


def _judge_tests(flakes: Flakes | None, report: Report) -> None:
    for task in flakes.tasks if flakes else ():
        if task.n_differing:
            step = f" of step {task.step}" if task.step else ""
            message = (
                f"the tests{step} gave different results on the same files: "
                f"{task.n_differing} of {count_of(task.verifications, 'verification')} differ"
            )
            report.add(_TESTS_FLAKY, message)


def _judge_findings(trials: Sequence[TracedTrial], report: Report) -> None:
    """Findings that every honest agent would get too: alarms are problems, notices are notes.

    So is a substituted base: programs that only the task's image has are missing then.
    """
    # Tests that disagree with themselves also disagree in a clean room.
    known = set(map(str, _FLAKY_FINDINGS)) if report.has(_TESTS_FLAKY) else set()
    for trial in trials:
        for finding in trial.findings:
            code, message = str(finding.get("code")), str(finding.get("message"))
            is_about_base = code == FindingCode.BASE_SUBSTITUTED
            if code in known or (level_of(code) is Level.INFO and not is_about_base):
                continue
            known.add(code)
            if not is_about_base:
                message = f"the solution raises {code}: {message}"
            if level_of(code) is Level.ALARM:
                report.add(code, message, trial)
            else:
                report.notes.append(Diagnostic(code, message, is_problem=False))


# Output


def _render(report: Report) -> Iterator[str]:
    n = len(report.problems)
    verdict = count_of(n, "problem") if n else "no problem found"
    yield f"{report.task}: {verdict}"
    yield from (f"  {each.agent:<6}  {each}" for each in report.agents)
    for problem in report.problems:
        yield ""
        yield f"{problem.what.code}: {problem.what}"
        for reason in problem.reasons:
            if named := ": ".join(
                filter(None, (reason.step and f"step {reason.step}", reason.title))
            ):
                yield f"    {named}"
            yield from (f"      {line}" for line in reason.lines)
        if problem.trial:
            yield f"  see {_find_file(problem)}"
    if report.notes:
        yield ""
    yield from (f"note: {note.code}: {note}" for note in report.notes)


def _find_file(problem: Problem) -> str:
    name = next((each.file for each in problem.reasons if each.file), "")
    return str(shorten_path(Path(problem.trial or "") / name))


def _describe(report: Report) -> dict[str, object]:
    return {
        "task": report.task,
        "environment": report.environment,
        "is_fine": not report.problems,
        "agents": {
            each.agent: {
                "attempts": len(each.trials),
                "passed": each.n_passed,
                "rewards": each.rewards,
            }
            for each in report.agents
        },
        "problems": [
            {
                "code": problem.what.code,
                "message": str(problem.what),
                "reasons": [msgspec.to_builtins(reason) for reason in problem.reasons],
                "trial": problem.trial,
            }
            for problem in report.problems
        ],
        "notes": [{"code": note.code, "message": str(note)} for note in report.notes],
        "verify_again": msgspec.to_builtins(report.flakes),
    }
