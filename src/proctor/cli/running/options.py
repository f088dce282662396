"""The options of `proctor run`: harbor's names, meanings and defaults, and some of our own.

Flags of harbor that have no implementation here are in proctor.cli.running.harbor_options, which
refuses them by name.
"""

import math
import os
from pathlib import Path
from typing import Any

import click

from proctor.cli.options import Numeric
from proctor.cli.running.place import LOCAL, Place
from proctor.cli.running.sections import Decorator, option, section
from proctor.job.options import MOST_LOST
from proctor.job.settings import MOST_AGAIN
from proctor.task.environment import parse_processors

AUTO = "auto"
POLICIES = click.Choice(["auto", "limit", "request", "guarantee", "ignore"], case_sensitive=False)


class File(click.Path):
    """Any path; commands report problems with it themselves."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Parse the path; an empty one is an unset variable, not the working directory."""
        if not os.fspath(value):
            self.fail("it is empty; expected a path", param, ctx)
        return super().convert(value, param, ctx)


def whole_number(least: int, most: int | None = None) -> Numeric[int]:
    """A whole number with a minimum, and optionally a maximum."""
    up_to = "on" if most is None else f"to {most}"
    return Numeric(
        "N",
        f"a whole number from {least} {up_to}",
        int,
        lambda number: number >= least and (most is None or number <= most),
    )


_FROM_0, _FROM_1 = whole_number(0), whole_number(1)
_ABOVE_0 = "a number above 0, such as 2 or 0.5"
_FACTOR = Numeric("FACTOR", _ABOVE_0, float, lambda factor: 0 < factor < math.inf)
_PROCESSORS = Numeric("N", _ABOVE_0, parse_processors, lambda number: number > 0)
_DOLLARS = Numeric(
    "USD",
    "an amount above 0, such as 0.50",
    lambda text: float(str(text).removeprefix("$")),
    lambda amount: 0 < amount < math.inf,
)
CONCURRENCY = Numeric[int | str](
    "N|auto",
    "a whole number from 1 on, or auto",
    lambda text: AUTO if text == AUTO else int(text),
    lambda number: isinstance(number, str) or number >= 1,
)
FILE = File(readable=False, path_type=Path)


def _many(*declarations: str, **attributes: Any) -> Any:
    """An option that may be repeated."""
    return option(*declarations, multiple=True, **attributes)


def _take_one(_: click.Context, __: click.Parameter, paths: tuple[Path, ...]) -> Path | None:
    if len(paths) > 1:
        raise click.UsageError(
            "-c is given more than once, which only harbor 0.25 accepts; merge the files into one"
        )
    if paths and str(paths[0]).startswith(("http:/", "https:/")):
        raise click.UsageError(
            "-c is a URL, which only harbor 0.25 accepts; download it and pass the file"
        )
    return paths[0] if paths else None


_CONFIG = _many(
    "-c",
    "--config",
    type=FILE,
    callback=_take_one,
    help="Read the job config from a .yaml or .json file; flags override it.",
)
_ATTEMPTS = option(
    "-k",
    "--n-attempts",
    type=_FROM_1,
    metavar="N",
    help="Number of attempts per task.  [default: 1]",
)
_ENVIRONMENT = option(
    "-e",
    "--env",
    "environment",
    help="Environment: sandbox (Linux, no daemon), docker (needs a Docker engine), null (runs "
    "nothing), one of harbor's, such as daytona, e2b or modal, or MODULE:CLASS.  "
    "[default: sandbox]",
)
_OVERRIDES = (
    option(
        "--override-cpus",
        type=_PROCESSORS,
        metavar="N",
        help="Set the number of CPUs for every task, such as 2 or 0.5.",
    ),
    option(
        "--override-memory-mb",
        type=_FROM_1,
        metavar="N",
        help="Set the memory for every task, in MiB.",
    ),
    option(
        "--override-storage-mb",
        type=_FROM_1,
        metavar="N",
        help="Set the disk space for every task, in MiB.",
    ),
    option(
        "--override-gpus", type=_FROM_0, metavar="N", help="Set the number of GPUs for every task."
    ),
    option(
        "--override-tpu",
        metavar="TYPE=TOPOLOGY",
        help="Set the TPU slice for every task, such as v6e=2x4.",
    ),
)
_RETRIES = (
    option(
        "-r",
        "--max-retries",
        type=_FROM_0,
        metavar="N",
        help="Maximum number of retries per trial.  [default: 0]",
    ),
    _many(
        "--retry-include",
        metavar="TYPE",
        help="Retry trials with this exception.  [default: any not excluded]",
    ),
    _many(
        "--retry-exclude",
        metavar="TYPE",
        help="Do not retry trials with this exception; takes precedence over --retry-include.",
    ),
)
_MULTIPLIERS = (
    option(
        "--timeout-multiplier",
        type=_FACTOR,
        help="Multiply all timeouts by FACTOR.  [default: 1]",
    ),
    option(
        "--agent-timeout-multiplier",
        type=_FACTOR,
        help="Use this factor for the agent timeout instead.",
    ),
    option(
        "--verifier-timeout-multiplier",
        type=_FACTOR,
        help="Use this factor for the verifier timeout instead.",
    ),
    option(
        "--agent-setup-timeout-multiplier",
        type=_FACTOR,
        help="Use this factor for the agent setup timeout instead.",
    ),
    option(
        "--environment-build-timeout-multiplier",
        type=_FACTOR,
        help="Use this factor for the environment build timeout instead.",
    ),
)

task_options: Decorator = section(
    "Tasks",
    option("-p", "--path", type=FILE, help="Task directory, or a directory of task directories."),
    option(
        "-d",
        "--dataset",
        metavar="NAME[@VERSION]",
        help="Dataset by name: published, in a registry, ORG/NAME in harbor's local cache, or in "
        "a repository: git+URL[@REF][#subdirectory=PATH].",
    ),
    option("-t", "--task", metavar="ORG/NAME[@REF]", help="One task in harbor's local cache."),
    _many(
        "-i",
        "--include-task-name",
        "include",
        metavar="GLOB",
        help="Include only tasks matching GLOB.",
    ),
    _many(
        "-x", "--exclude-task-name", "exclude", metavar="GLOB", help="Exclude tasks matching GLOB."
    ),
    option("-l", "--n-tasks", type=_FROM_1, metavar="N", help="Limit the number of tasks."),
    option(
        "--registry-path",
        type=FILE,
        help="Look up --dataset in this JSON registry.  [default: PROCTOR_REGISTRY]",
    ),
    option("--registry-url", help="Look up --dataset in the JSON registry at this URL."),
    option("--task-git-url", help="Git repository that contains --path."),
    option("--task-git-commit", help="Commit of that repository; requires --task-git-url."),
    _many("--extra-instruction-path", type=FILE, help="Append this file to every instruction."),
)

agent_options: Decorator = section(
    "Agent",
    option(
        "-a",
        "--agent",
        help="Agent: oracle (runs the tasks' own solutions), nop, command, scripted, chat, replay, "
        "one of harbor's agents, or MODULE:CLASS.",
    ),
    option(
        "--agent-import-path",
        metavar="MODULE:CLASS",
        help="Use a Python class with harbor's agent interface.",
    ),
    option(
        "--command",
        "shell_command",
        metavar="CMD",
        help="Run this shell command as the agent, inside the environment.",
    ),
    option(
        "--agent-tree",
        type=FILE,
        help="Copy the directory of your agent to /installed-agent in the environment.",
    ),
    option(
        "--agent-version-command",
        metavar="CMD",
        help="Command that prints the revision of your agent.",
    ),
    _many(
        "-m",
        "--model",
        "models",
        metavar="NAME",
        help="Model to use; repeat to run one agent per model.",
    ),
    _many(
        "--ak",
        "--agent-kwarg",
        "agent_kwargs",
        metavar="K=V",
        help="Pass an argument to the agent.",
    ),
    _many(
        "--ae",
        "--agent-env",
        "agent_env",
        metavar="K=V",
        help="Set an environment variable for the agent.",
    ),
    _many("--mcp-config", type=FILE, help="Read MCP servers for the agent from this file."),
    _many(
        "--skill",
        "--skills",
        "skills",
        type=FILE,
        help="Add a skill directory, or a directory of skills.",
    ),
    _many(
        "--allow-agent-host", metavar="HOST", help="Allow the agent to reach this additional host."
    ),
)

OFFLINE_HELP = "Do not pull images; they must already be in the store."

environment_options: Decorator = section(
    "Environment",
    _ENVIRONMENT,
    option(
        "--environment-import-path", metavar="MODULE:CLASS", help="Use your own environment class."
    ),
    option(
        "--base",
        metavar="host|IMAGE",
        help="Root file system of the sandbox, also for tasks whose image was neither pulled nor "
        "imported; short for --ek base=…",
    ),
    option(
        "--builder",
        type=click.Choice(["auto", "sandbox", "buildah", "docker"]),
        help="Program that builds Dockerfiles for the sandbox: the sandbox itself, buildah or "
        "docker; auto, the default, uses an installed one for what the sandbox does not build; "
        "short for --ek builder=…",
    ),
    option("--offline", is_flag=True, help=OFFLINE_HELP),
    _many(
        "--ek",
        "--environment-kwarg",
        "environment_kwargs",
        metavar="K=V",
        help="Pass an argument to the environment.",
    ),
    _many(
        "--allow-environment-host",
        metavar="HOST",
        help="Allow the environment to reach this additional host.",
    ),
    _many(
        "--allow-host-port",
        metavar="ADDRESS:PORT",
        help="Let the agent reach this TCP port of this machine from the sandbox, such as a model "
        "server; short for --ek host_ports=…",
    ),
    option(
        "--force-build/--no-force-build",
        default=None,
        help="Rebuild the environment even if it is cached.",
    ),
    option(
        "--delete/--no-delete",
        default=None,
        help="Delete the environment after the trial, or keep it.",
    ),
    option(
        "--cpus", type=POLICIES, help="How to enforce the CPU limit of a task.  [default: auto]"
    ),
    option(
        "--memory",
        type=POLICIES,
        help="How to enforce the memory limit of a task.  [default: auto]",
    ),
    *_OVERRIDES,
)

verifier_options: Decorator = section(
    "Verifier",
    _many(
        "--ve",
        "--verifier-env",
        "verifier_env",
        metavar="K=V",
        help="Set an environment variable for the tests.",
    ),
    option(
        "--verifier-import-path",
        "--verifier",
        "verifier_import_path",
        metavar="MODULE:CLASS",
        help="Use your own verifier class.",
    ),
    _many(
        "--verifier-kwarg",
        "verifier_kwargs",
        metavar="K=V",
        help="Pass an argument to the verifier class.",
    ),
    option("--disable-verification/--enable-verification", help="Do not run the tests."),
    option(
        "--verifier-compat",
        type=click.Choice(["harbor-0.13.1"]),
        help="Keep the agent's files in /tests and /logs/verifier, as harbor does.",
    ),
    option(
        "--verify-again",
        type=whole_number(0, MOST_AGAIN),
        default=0,
        metavar="N",
        help="Run the verifier N more times on the state the agent left, and report how far "
        "the results agree.",
    ),
    option(
        "--clean-room/--no-clean-room",
        default=True,
        help="Repeat the tests of trials with a reward above 0 without the agent's changes to "
        "the system.",
    ),
)

model_options: Decorator = section(
    "Models",
    _many(
        "--model-endpoint",
        metavar="PROVIDER=URL",
        help="Send requests for a provider (openai, anthropic, gemini) to this URL, such as a "
        "local server.  [default: the provider's own]",
    ),
    option(
        "--gateway/--no-gateway",
        default=True,
        help="Record the requests of agents to their model, and keep its key out of the "
        "environment.",
    ),
    option("--max-cost", type=_DOLLARS, help="Limit what the model of one trial may cost."),
    option("--max-job-cost", type=_DOLLARS, help="Limit the cost of all trials together."),
    option(
        "--replay-model",
        type=FILE,
        metavar="TRIAL_OR_JOB",
        help="Answer the agent's requests with the recorded answers of this trial, or of this "
        "job's trials of the same tasks, instead of asking a model. No key is needed.",
    ),
    option(
        "--on-difference",
        type=click.Choice(["stop", "live", "position"]),
        help="What to do at a request that --replay-model has no answer for: end the trial, ask "
        "the model from there on, or give the next recorded answer.  [default: stop]",
    ),
)

ON_HELP = (
    "Run trials on this machine, or on a Ray cluster: ray://HOST:PORT, or ray for the one that "
    "RAY_ADDRESS names.  [default: local]"
)
INSECURE_HELP = "Use a cluster without token authentication, where anyone can run code."
LOST_HELP = (
    f"Number of times to rerun a trial whose machine of the cluster died.  [default: {MOST_LOST}]"
)

job_options: Decorator = section(
    "Job",
    _CONFIG,
    option("-o", "--jobs-dir", type=FILE, help="Directory for jobs.  [default: jobs]"),
    option("--job-name", help="Name of the job.  [default: the current time]"),
    _ATTEMPTS,
    option(
        "-n",
        "--n-concurrent",
        type=CONCURRENCY,
        metavar="N|auto",
        help="Number of trials to run at once.  [default: 4; on a cluster, as many as fit]",
    ),
    option("--on", type=Place(), default=LOCAL, metavar=Place.name, help=ON_HELP),
    option("--insecure-cluster", is_flag=True, help=INSECURE_HELP),
    option("--max-lost", type=_FROM_0, default=MOST_LOST, metavar="N", help=LOST_HELP),
    *_RETRIES,
    _many(
        "--artifact", "artifacts", metavar="PATH", help="Collect this path from the environment."
    ),
    *_MULTIPLIERS,
    option(
        "--env-file", type=FILE, help="Read a .env file, and treat its variables as the host's."
    ),
    option(
        "-y",
        "--yes",
        is_flag=True,
        help="Allow tasks to read the host environment variables they ask for.",
    ),
    option("--debug", is_flag=True, help="Print a line for each phase of each trial."),
)

record_options: Decorator = section(
    "Records",
    option("--experiment", help="Name of the experiment in the records.  [default: the job name]"),
    option(
        "--extend-experiment",
        is_flag=True,
        help="Allow adding other agents, tasks or attempts to an experiment in the ledger.",
    ),
    option(
        "--ledger",
        type=FILE,
        help="Seal trials into this ledger.  [default: PROCTOR_LEDGER, ./ledger]",
    ),
    option("--no-ledger", is_flag=True, help="Do not seal trials into a ledger."),
    option("--key", type=FILE, help="Signing key.  [default: PROCTOR_KEY, your own key]"),
)

output_options: Decorator = section(
    "Output",
    option("--dry-run", is_flag=True, help="Show what would run, and why; write nothing."),
    option("-q", "--quiet", "--silent", is_flag=True, help="Do not show progress."),
    option(
        "--result-line",
        is_flag=True,
        help="Print the result line last, and use harbor's exit codes.",
    ),
    option("--json", "as_json", is_flag=True, help="Print one JSON document."),
)
