"""`proctor run`: runs an agent on tasks as one job, with harbor's flags."""

import os
import sys
from datetime import UTC, datetime
from typing import Any

import click

from proctor.cli.fetching import make_report
from proctor.cli.options import check_apart
from proctor.cli.running.config import make_config
from proctor.cli.running.display import leave_at_once, say
from proctor.cli.running.files import load_env_file
from proctor.cli.running.flags import RunFlags
from proctor.cli.running.harbor_options import RunCommand
from proctor.cli.running.host import Consent
from proctor.cli.running.images import choose_fetching, with_default_base
from proctor.cli.running.ledger import choose_ledger
from proctor.cli.running.mistakes import check_agents, check_no_extra
from proctor.cli.running.options import (
    agent_options,
    environment_options,
    job_options,
    model_options,
    output_options,
    record_options,
    task_options,
    verifier_options,
)
from proctor.cli.running.place import choose_place
from proctor.cli.running.preview import show_preview
from proctor.cli.running.watched import Printing, always_with_line, watch_job
from proctor.harbor.configs import JobConfig
from proctor.job.classes import check_classes
from proctor.job.fetching import say_nothing
from proctor.job.job import run_job
from proctor.job.options import JobOptions
from proctor.job.preview import preview_run


@click.command("run", cls=RunCommand, context_settings={"allow_extra_args": True})
@task_options
@agent_options
@environment_options
@verifier_options
@model_options
@job_options
@record_options
@output_options
def command(**given: Any) -> int:
    """Run an agent on tasks: many trials in one job.

    Flags, job directories and scores are compatible with harbor's. The default environment is a
    sandbox on this machine, without a daemon, on the images that tasks name: missing ones are
    pulled from their registries. Every attempt is kept; resume a stopped job with `proctor resume`.
    Press Ctrl-C once to end the trials and keep their records, twice to stop immediately. Each
    trial is sealed into the ledger when it ends. Rare settings have no flag: the job file (-c) has
    them, and docs/guide/run.md lists them.

    Exit code 0: done. 2: wrong usage or bad input; nothing was run. 3: done, but some trials were
    not scored or some tasks were refused. 130: interrupted. With --result-line: 0 unless the job
    itself died.

    Example: proctor run -p tasks --agent-tree my-agent --command /installed-agent/run.sh -k 3
    """
    with always_with_line(result_line=given["result_line"] and not given["as_json"]):
        return _run(given)


def _run(given: dict[str, Any]) -> int:
    check_no_extra("run", click.get_current_context().args)
    flags = with_default_base(RunFlags(**given), os.environ)
    check_apart("as_json", "result_line")
    variables = load_env_file(flags.env_file, os.environ) if flags.env_file else {}
    # Agents and environments of plugins look for their keys in os.environ too.
    os.environ.update(variables)
    now = datetime.now(UTC).astimezone()
    requested = make_config(flags, now, os.environ, lambda note: say(f"note: {note}"))
    check_classes(requested.config)
    check_agents(requested.config)
    dry_run, quiet = flags.dry_run, requested.config.quiet
    # A dry run passes no variables to tasks, so that no consent is needed.
    yes = flags.yes or dry_run
    on = choose_place(flags.on, is_insecure=flags.insecure_cluster)
    options = JobOptions(
        config=requested.config,
        settings=requested.settings,
        invocation=sys.argv,
        # A cluster has room for more than harbor's default.
        is_auto=requested.is_auto or (on is not None and flags.n_concurrent is None),
        environment_why=_environment_why(flags, from_file=flags.config is not None),
        stop_at_once=leave_at_once,
        approve=Consent(os.environ, frozenset(variables), yes=yes),
        ledger=choose_ledger(
            flags.ledger,
            flags.key,
            is_sealed=not flags.no_ledger,
            extends=flags.extend_experiment,
            host=os.environ,
        ),
        open_executor=on,
        max_lost=flags.max_lost,
        report=say_nothing if quiet else make_report(),
        fetching=choose_fetching(os.environ, offline=flags.offline, dry_run=dry_run, quiet=quiet),
    )
    if dry_run:
        return show_preview(preview_run(options), as_json=flags.as_json)
    printing = _choose_printing(requested.config, flags)
    return watch_job(lambda watch: run_job(options, watch), requested.config.job_name, printing)


def _choose_printing(config: JobConfig, flags: RunFlags) -> Printing:
    return Printing(
        quiet=config.quiet,
        as_json=flags.as_json,
        result_line=flags.result_line,
        debug=config.debug,
    )


def _environment_why(flags: RunFlags, *, from_file: bool) -> str:
    if flags.environment is not None:
        return f"--env {flags.environment}"
    if flags.environment_import_path is not None:
        return "--environment-import-path"
    return "by the config file or by default" if from_file else "the default"
