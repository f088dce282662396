"""The options of `proctor run`: harbor's names, meanings and defaults, and a few of our own.

A flag of harbor that nothing here could honour is not among them, so that click says so: plugins,
uploads, compose files, mounts and trace exports.
"""

import math
import os
from pathlib import Path
from typing import Any

import click

from proctor.cli.running.sections import Decorator, option, section
from proctor.job.settings import MOST_AGAIN

AUTO = "auto"
POLICIES = click.Choice(["auto", "limit", "request", "guarantee", "ignore"], case_sensitive=False)


class File(click.Path):
    """Any path; what is wrong with it is said by whoever reads it, in a sentence."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path; an empty one is a variable that was not set, and not the directory here."""
        if not os.fspath(value):
            self.fail("it is empty; expected a path", param, ctx)
        return super().convert(value, param, ctx)


class Number(click.ParamType[int]):
    """A whole number from some number on, perhaps up to another."""

    name = "N"

    def __init__(self, least: int, most: int | None = None) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        try:
            number = int(value)
        except ValueError:
            number = self._least - 1
        if number < self._least or (self._most is not None and number > self._most):
            up_to = "on" if self._most is None else f"to {self._most}"
            self.fail(f"{value!r}; expected a whole number from {self._least} {up_to}", param, ctx)
        return number


_FROM_0, _FROM_1 = Number(0), Number(1)
FILE = File(readable=False, path_type=Path)


class Concurrency(click.ParamType[int | str]):
    """Trials at once: a whole number from 1 on, or `auto`."""

    name = "N|auto"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """The number, or the word."""
        if value == AUTO:
            return AUTO
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r}; expected a whole number from 1 on, or auto", param, ctx)
        return number


class Multiplier(click.ParamType[float]):
    """A factor for seconds: above 0 and finite."""

    name = "FACTOR"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The factor."""
        try:
            factor = float(value)
        except ValueError:
            factor = math.nan
        if not (math.isfinite(factor) and factor > 0):
            self.fail(f"{value!r}; expected a number above 0, such as 2 or 0.5", param, ctx)
        return factor


def _many(*declarations: str, **attributes: Any) -> Any:
    """An option that may be given several times."""
    return option(*declarations, multiple=True, **attributes)


_CONFIG = option("-c", "--config", type=FILE, help="Job config, .yaml or .json; flags override it.")
_ATTEMPTS = option(
    "-k", "--n-attempts", type=_FROM_1, metavar="N", help="At each task.  [default: 1]"
)
_ENVIRONMENT = option("-e", "--env", "environment", help="sandbox, null.  [default: sandbox]")
_DATASET_ID = option(
    "--dataset-id",
    metavar="NAME@VERSION",
    help="Dataset of the records.  [default: what --dataset found]",
)
_OVERRIDES = (
    option("--override-cpus", type=_FROM_1, metavar="N", help="Processors for every task."),
    option("--override-memory-mb", type=_FROM_1, metavar="N", help="MiB of memory."),
    option("--override-storage-mb", type=_FROM_1, metavar="N", help="MiB of disk."),
    option("--override-gpus", type=_FROM_0, metavar="N", help="Graphics processors."),
    option("--override-tpu", metavar="TYPE=TOPOLOGY", help="TPU slice, such as v6e=2x4."),
)
_RETRIES = (
    option("-r", "--max-retries", type=_FROM_0, metavar="N", help="Of a trial.  [default: 0]"),
    _many("--retry-include", metavar="TYPE", help="Exception to retry.  [default: any]"),
    _many(
        "--retry-exclude",
        metavar="TYPE",
        help="Exception not to retry; goes before --retry-include.",
    ),
)
_MULTIPLIERS = (
    option("--timeout-multiplier", type=Multiplier(), help="For all timeouts.  [default: 1]"),
    option("--agent-timeout-multiplier", type=Multiplier(), help="For the agent's instead."),
    option("--verifier-timeout-multiplier", type=Multiplier(), help="For the verifier's."),
    option("--agent-setup-timeout-multiplier", type=Multiplier(), help="For agent set-up."),
    option("--environment-build-timeout-multiplier", type=Multiplier(), help="For building."),
)

task_options: Decorator = section(
    "Tasks",
    option("-p", "--path", type=FILE, help="A task directory, or a directory of them."),
    option("-d", "--dataset", metavar="NAME[@VERSION]", help="Dataset of a registry, or ORG/NAME."),
    option("-t", "--task", metavar="ORG/NAME[@REF]", help="One task of harbor's local cache."),
    _many("-i", "--include-task-name", "include", metavar="GLOB", help="Only tasks so named."),
    _many("-x", "--exclude-task-name", "exclude", metavar="GLOB", help="No tasks so named."),
    option("-l", "--n-tasks", type=_FROM_1, metavar="N", help="At most so many."),
    option("--registry-path", type=FILE, help="JSON registry that --dataset is looked up in."),
    option("--registry-url", help="The same, from the network."),
    option("--task-git-url", help="Git repository in which --path is."),
    option("--task-git-commit", help="Its commit; needs --task-git-url."),
    _many("--extra-instruction-path", type=FILE, help="File added to every instruction."),
    option(
        "--task-order",
        type=click.Choice(["name", "directory"]),
        help="Sorted by name, or as the directory lists them, as harbor.  [default: name]",
    ),
    option("--strict-tasks", is_flag=True, help="One invalid task refuses the whole job."),
)

agent_options: Decorator = section(
    "Agent",
    option(
        "-a",
        "--agent",
        help="oracle, nop, command, scripted, chat, replay, harbor's.  [default: oracle]",
    ),
    option("--agent-import-path", metavar="MODULE:CLASS", help="A class with harbor's interface."),
    option("--command", "shell_command", metavar="CMD", help="Your agent: a shell command."),
    option("--agent-tree", type=FILE, help="Directory of your agent, put into the environment."),
    option("--agent-version-command", metavar="CMD", help="Prints your agent's revision."),
    _many("-m", "--model", "models", metavar="NAME", help="Model; each makes one more agent."),
    _many("--ak", "--agent-kwarg", "agent_kwargs", metavar="K=V", help="Argument of the agent."),
    _many("--ae", "--agent-env", "agent_env", metavar="K=V", help="Variable of the agent."),
    _many("--mcp-config", type=FILE, help="File with MCP servers for the agent."),
    _many("--skill", "--skills", "skills", type=FILE, help="Directory of a skill, or of several."),
    _many("--allow-agent-host", metavar="HOST", help="Host the agent may reach besides."),
)

environment_options: Decorator = section(
    "Environment",
    _ENVIRONMENT,
    option("--environment-import-path", metavar="MODULE:CLASS", help="A class of your own."),
    option("--base", metavar="host|IMAGE", help="Root file system of the sandbox; --ek base=…"),
    _many("--ek", "--environment-kwarg", "environment_kwargs", metavar="K=V", help="Its argument."),
    _many("--allow-environment-host", metavar="HOST", help="Host that may be reached besides."),
    option("--force-build/--no-force-build", default=None, help="Build anew what is cached."),
    option("--delete/--no-delete", default=None, help="Whether it is gone afterwards."),
    option("--cpus", type=POLICIES, help="How a task's cpus are enforced.  [default: auto]"),
    option("--memory", type=POLICIES, help="How its memory is.  [default: auto]"),
    *_OVERRIDES,
)

verifier_options: Decorator = section(
    "Verifier",
    _many("--ve", "--verifier-env", "verifier_env", metavar="K=V", help="Variable of the tests."),
    option("--verifier-import-path", metavar="MODULE:CLASS", help="A class of your own."),
    _many("--verifier-kwarg", "verifier_kwargs", metavar="K=V", help="Argument of that class."),
    option("--disable-verification/--enable-verification", help="Run no tests."),
    option(
        "--verifier-compat",
        type=click.Choice(["harbor-0.13.1"]),
        help="Leave the agent's files in /tests and /logs/verifier, as harbor does.",
    ),
    option(
        "--verify-again",
        type=Number(0, MOST_AGAIN),
        default=0,
        metavar="N",
        help="Verify what the agent left N times more, and say how far the results agree.",
    ),
    option(
        "--clean-room/--no-clean-room",
        default=True,
        help="Repeat the tests of a trial with a reward without the agent's changes to the system.",
    ),
)

job_options: Decorator = section(
    "Job",
    _CONFIG,
    option("-o", "--jobs-dir", type=FILE, help="Where jobs are kept.  [default: jobs]"),
    option("--job-name", help="Name of the job.  [default: the time]"),
    _ATTEMPTS,
    option(
        "-n",
        "--n-concurrent",
        type=Concurrency(),
        metavar="N|auto",
        help="Trials at once.  [default: 4]",
    ),
    *_RETRIES,
    _many("--artifact", "artifacts", metavar="PATH", help="Path inside that is collected."),
    *_MULTIPLIERS,
    option("--env-file", type=FILE, help="Variables to take as the host's, in .env form."),
    option("-y", "--yes", is_flag=True, help="Let tasks have the host's variables they ask for."),
    option("--debug", is_flag=True, help="Say every phase of every trial, in lines."),
)

planned_options: Decorator = section(
    "Plan",
    _CONFIG,
    _ATTEMPTS,
    _ENVIRONMENT,
    *_OVERRIDES,
    *_RETRIES,
    *_MULTIPLIERS,
    _DATASET_ID,
)
"""What else of a job a plan speaks of."""

record_options: Decorator = section(
    "Records",
    option("--experiment", help="Experiment of the records.  [default: the job's name]"),
    option(
        "--extend-experiment",
        is_flag=True,
        help="Add other agents, tasks or attempts to an experiment of the ledger.",
    ),
    _DATASET_ID,
    option("--adaptation", type=FILE, help="JSON file with the tasks' adaptation."),
    option("--system-prompt", type=FILE, help="File with the agent's system prompt."),
    option("--ledger", type=FILE, help="Ledger to seal into.  [default: PROCTOR_LEDGER, ./ledger]"),
    option("--no-ledger", is_flag=True, help="Seal nothing."),
    option("--key", type=FILE, help="Signing key.  [default: PROCTOR_KEY, your own]"),
)

output_options: Decorator = section(
    "Output",
    option("--dry-run", is_flag=True, help="Say what would run, and why; write nothing."),
    option("-q", "--quiet", "--silent", is_flag=True, help="Show no progress."),
    option("--result-line", is_flag=True, help="Print the outcome line last; harbor's exit codes."),
    option("--json", "as_json", is_flag=True, help="Print one JSON document."),
)
