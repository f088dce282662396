"""`proctor plan`: seals a plan before its run, and shows plans."""

import getpass
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import click
import msgspec

from proctor.cli.ledger.options import key_option, ledger_option, open_ledger
from proctor.cli.ledger.target import open_target
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.plain_table import print_rows
from proctor.cli.running.config import RequestedJob, make_config
from proctor.cli.running.flags import RunFlags
from proctor.cli.running.mistakes import check_agents
from proctor.cli.running.options import agent_options, planned_options, task_options
from proctor.cli.running.sections import SectionedGroup, option, section
from proctor.cli.stdout import print_stderr
from proctor.errors import InputError
from proctor.job.classes import check_classes
from proctor.ledger.entry import Cause
from proctor.ledger.query import list_trials
from proctor.ledger.reader import LedgerReader
from proctor.ledger.review import append_plan, check_words
from proctor.ledger.run_plan import RunPlan, encode_plan, plan_digest
from proctor.ledger.sealed_plans import SealedPlan, get_plan, list_plans
from proctor.ledger.trial_index import TrialFilter, check_text
from proctor.ledger.withheld import list_unnamed, render_unnamed
from proctor.record.ids import check_id
from proctor.report.planned.making import make_plan
from proctor.sentence import count_of

_CAUSES = get_args(Cause.__value__)
_MOST_SHOWN = 20

rule_options = section(
    "Rules",
    option("--experiment", metavar="ID", help="Experiment to plan."),
    option(
        "--exclude-rule",
        "exclusions",
        type=click.Choice(_CAUSES),
        multiple=True,
        help="Allow replacing a trial by another for this cause.  [default: none]",
    ),
    option("--note", default="", metavar="TEXT", help="Add a note to the plan."),
    option("--author", metavar="NAME", help="Author of the plan.  [default: your login name]"),
    option("--dry-run", is_flag=True, help="Print the plan without sealing it."),
)


@click.group("plan", cls=SectionedGroup, invoke_without_command=True)
@click.pass_context
@task_options
@agent_options
@planned_options
@rule_options
@ledger_option
@key_option
@json_option
def command(
    context: click.Context,
    *,
    directory: str | None,
    key_file: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Seal a plan of what will be run, before running it.

    The plan names every task with its digest, the agents with a digest of their settings, the
    attempts, the limits, which trials may be retried, and for which causes a trial may be excluded
    from the numbers. The options are those of `proctor run`. Run the job under the same
    --experiment; `proctor audit EXPERIMENT --plan` then shows each deviation.

    Example: proctor plan -p tasks -a oracle -k 5 --experiment nightly --exclude-rule infrastructure
    """
    if context.invoked_subcommand is not None:
        return 0
    experiment = _check_experiment(given.pop("experiment"))
    rules = {name: given.pop(name) for name in ("exclusions", "note", "author", "dry_run")}
    author = rules["author"] if rules["author"] is not None else _login_name()
    check_words(author, "the author")
    check_text(author, "--author")
    requested = _make_request(given)
    plan = make_plan(
        requested.config,
        requested.settings,
        exclusions=rules["exclusions"],
        note=rules["note"],
        host=os.environ,
    )
    data = encode_plan(plan)
    if rules["dry_run"]:
        _show(plan, {"experiment_id": experiment, "digest": plan_digest(data)}, as_json=as_json)
        return 0
    with open_target(directory, key_file) as ledger:
        _note_early(ledger, experiment)
        seq = append_plan(ledger, experiment, data, author=author)
    facts = {"seq": seq, "experiment_id": experiment, "digest": plan_digest(data), "author": author}
    _show(plan, facts, as_json=as_json)
    return 0


def _check_experiment(given: str | None) -> str:
    if given is None:
        raise click.UsageError("--experiment is missing; name the experiment that will be run")
    check_id(given, "--experiment")
    return given


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise InputError("your login name is unknown; pass --author NAME") from error


def _make_request(given: dict[str, Any]) -> RequestedJob:
    now = datetime.now(UTC).astimezone()
    requested = make_config(
        RunFlags(**given), now, os.environ, lambda note: print_stderr(f"note: {note}")
    )
    check_classes(requested.config)
    check_agents(requested.config)
    return requested


def _note_early(ledger: LedgerReader, experiment: str) -> None:
    if early := len(list_trials(ledger, TrialFilter(experiment=experiment))):
        trials = count_of(early, "trial")
        print_stderr(f"note: {trials} of {experiment} are sealed already, before this plan")


def _show(plan: RunPlan, facts: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json({**facts, "plan": msgspec.to_builtins(plan)})
        return
    place = f"entry {facts['seq']}" if "seq" in facts else "not sealed"
    print_line(f"{facts['experiment_id']}: {place}, sha256 {facts['digest']}")
    for line in render_plan(plan):
        print_line(line)


def render_plan(plan: RunPlan) -> Iterator[str]:
    """Render a plan in lines."""
    tasks, agents = count_of(len(plan.tasks), "task"), count_of(len(plan.agents), "agent")
    attempts = count_of(plan.attempts, "attempt")
    dataset = f" of {plan.dataset}" if plan.dataset else ""
    yield f"{count_of(plan.n_trials, 'trial')} = {tasks}{dataset} x {agents} x {attempts}"
    for agent in plan.agents:
        model = f" with {agent.model}" if agent.model else ""
        revision = f", revision {agent.revision}" if agent.revision else ""
        yield f"agent: {agent.agent}{model}, settings {agent.settings}{revision}"
    limits = ", ".join(f"{name} {value}" for name, value in plan.limits.items())
    yield f"in: {plan.environment}, {limits or 'default limits'}"
    yield f"retries: at most {count_of(plan.retries.most, 'time')}"
    yield f"exclusions allowed for: {', '.join(plan.exclusions) or 'no cause'}"
    if plan.note:
        yield f"note: {plan.note}"
    for each in plan.tasks[:_MOST_SHOWN]:
        yield f"task: {each.task}  {each.revision}"
    if (more := len(plan.tasks) - _MOST_SHOWN) > 0:
        yield f"… and {more} more tasks; --json lists all"


@command.command("show")
@click.argument("name", required=False, metavar="[ENTRY|EXPERIMENT]")
@ledger_option
@json_option
def show(name: str | None, directory: str | None, as_json: bool) -> int:
    """Show a sealed plan; without a name, list all plans.

    If an experiment was planned more than once, the first plan is shown.

    Example: proctor plan show nightly
    """
    with open_ledger(directory) as ledger:
        if name is not None:
            found = get_plan(ledger, name)
            _show(found.plan, _facts(found), as_json=as_json)
            return 0
        plans = list_plans(ledger)
        unnamed = list_unnamed(ledger)
    if as_json:
        documents = [_facts(each) for each in plans]
        print_json({"plans": documents, "withheld_unnamed": len(unnamed)})
    elif plans:
        rows = [
            (str(each.seq), each.experiment, str(each.n_trials or "?"), each.author, each.at)
            for each in plans
        ]
        headings = ("entry", "experiment", "trials", "author", "sealed")
        print_rows(headings, rows, right=("entry", "trials"))
    else:
        print_line("no plan is sealed yet")
    if disclosed := render_unnamed(unnamed):
        # A withheld plan names no trial either.
        print_stderr(f"note: {disclosed}")
    return 0


def _facts(sealed: SealedPlan) -> dict[str, object]:
    return {
        "seq": sealed.seq,
        "at": sealed.at,
        "experiment_id": sealed.experiment,
        "digest": sealed.digest,
        "author": sealed.author,
    }
