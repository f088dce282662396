"""`proctor task try --shell`: opens a shell in a task's environment.

The shell is the agent of a trial that is not verified, so that it finds what an agent finds: the
working directory, the user, the variables, the network.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from proctor.cli.running.display import leave_at_once, say
from proctor.cli.running.host import Consent
from proctor.environments.kinds import make_environment as start_environment
from proctor.environments.sandbox.scratch import make_temporary
from proctor.errors import InputError, UnsupportedError
from proctor.exchange.traced_files import find_in_files
from proctor.harbor.configs import (
    AgentConfig,
    EnvironmentConfig,
    JobConfig,
    TaskConfig,
    VerifierConfig,
)
from proctor.job.images import ImageFetching
from proctor.job.job import run_job
from proctor.job.local_executor import LocalExecutor
from proctor.job.options import INTERRUPTED, JobOptions
from proctor.job.settings import Settings
from proctor.job.watch import Watch
from proctor.traces.failures import read_failures
from proctor.trial.agent import AgentContext, Kinds
from proctor.trial.environment import Attaching, Environment

_JOB = "shell"
# No time limit: harbor's configuration has no value for one, so it is a very long one.
_NO_LIMIT_SEC = 1e8


def open_shell(
    directory: Path,
    environment: EnvironmentConfig,
    task: str,
    fetching: ImageFetching,
    *,
    yes: bool,
) -> int:
    """Open the shell; returns its exit code.

    Raises:
        InputError: it could not be opened.
    """
    config = JobConfig(
        job_name=_JOB,
        jobs_dir=make_temporary(),
        agents=[AgentConfig(name="nop", override_timeout_sec=_NO_LIMIT_SEC)],
        tasks=[TaskConfig(path=directory.absolute())],
        environment=environment,
        verifier=VerifierConfig(disable=True),
    )
    try:
        return _run(config, task, fetching, yes=yes)
    finally:
        shutil.rmtree(config.jobs_dir, ignore_errors=True)


def _run(config: JobConfig, task: str, fetching: ImageFetching, *, yes: bool) -> int:
    options = JobOptions(
        config=config,
        settings=Settings(clean_room=False),
        invocation=sys.argv,
        stop_at_once=leave_at_once,
        approve=Consent(os.environ, frozenset(), yes=yes, remedy="export what is missing"),
        fetching=fetching,
    )
    shell = Shell(f"{task}: a shell in its {config.environment.type or 'sandbox'}")
    kinds = Kinds(lambda _order: shell, start_environment)
    executor = LocalExecutor(config.jobs_dir / _JOB, 1, kinds)
    outcome = asyncio.run(run_job(options, Watch(), executor))
    if outcome.interrupted:
        return INTERRUPTED
    if shell.code is None:
        raise InputError(f"{task}: no shell could be opened: {_explain(outcome.directory)}")
    return shell.code


def _explain(job: Path) -> str:
    """Why the only trial of a job ended early."""
    failures = (
        each for trial in find_in_files(str(job)) for each in read_failures(trial, None).exceptions
    )
    return next((f"{each.title}: {each.line}" for each in failures), "unknown reason")


class Shell:
    """An agent that lets the user do the task."""

    def __init__(self, title: str) -> None:
        self._title = title
        self.code: int | None = None
        """Exit code of the shell; None until it has ended."""

    @staticmethod
    def name() -> str:
        """Return the name used in results."""
        return "shell"

    def version(self) -> str | None:
        """Return None: it has no version."""
        return None

    async def setup(self, environment: Environment) -> None:
        """Do nothing: no setup is needed."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Open the shell, in the first step of a task of several."""
        if self.code is not None:
            return
        if not isinstance(environment, Attaching):
            raise UnsupportedError(f"{self._title}: not supported by this environment")
        where = (await environment.exec("id -un 2>/dev/null; pwd")).stdout or ""
        user, _, place = where.strip().rpartition("\n")
        say(
            f"{self._title}, in {place}{f', as {user}' if user else ''}; leave with exit or "
            "Ctrl-D, then everything in it is removed"
        )
        self.code = await environment.attach()
