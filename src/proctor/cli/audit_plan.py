"""`proctor audit EXPERIMENT --plan`: what was run beside what was planned."""

from collections.abc import Sequence

import click
import msgspec

from proctor.cli.ledger.options import open_ledger
from proctor.cli.output import print_json, print_line
from proctor.errors import InputError
from proctor.ledger.ledger import Ledger
from proctor.ledger.sealed_plans import SealedPlan, find_plan, find_plans
from proctor.report.planned.deviations import PlanAudit, audit_plan
from proctor.sentence import count_of

FIRST = ""
"""What stands for the first plan of an experiment."""


def audit_experiment(
    things: Sequence[str], plan: str, directory: str | None, *, as_json: bool
) -> int:
    """Print each deviation; 1 where there is one."""
    if len(things) != 1:
        raise click.UsageError(f"--plan audits one experiment; {len(things)} were given")
    with open_ledger(directory) as ledger:
        audit = audit_plan(ledger, _find(ledger, things[0], plan))
    if as_json:
        print_json(_document(audit))
    else:
        _print(audit)
    return 0 if audit.follows else 1


def _find(ledger: Ledger, experiment: str, plan: str) -> SealedPlan:
    if plan == FIRST:
        return find_plan(ledger, experiment)
    if not (plan.isascii() and plan.isdigit()):
        raise InputError(f"--plan is {plan!r}; expected the number of a plan's entry")
    found = [each for each in find_plans(ledger, experiment) if each.seq == int(plan[:20])]
    if not found:
        raise InputError(
            f"{ledger.directory}: entry {plan} is no plan of {experiment}; `proctor plan show` "
            "lists the plans"
        )
    return found[0]


def _print(audit: PlanAudit) -> None:
    sealed, n = audit.sealed, len(audit.deviations)
    verdict = count_of(n, "deviation") if n else "as planned"
    print_line(f"{sealed.experiment}: {verdict} (plan: entry {sealed.seq}, by {sealed.author})")
    print_line(f"  {sealed.plan.n_trials} planned, {audit.listed} sealed, {audit.counted} counted")
    for each in audit.deviations:
        place = "" if each.seq is None else f"  (entry {each.seq})"
        print_line(f"  {each.kind}  {each.subject}{place}")
        print_line(f"    {each.message}")


def _document(audit: PlanAudit) -> dict[str, object]:
    sealed = audit.sealed
    return {
        "experiment_id": sealed.experiment,
        "plan": {"seq": sealed.seq, "at": sealed.at, "digest": sealed.digest},
        "follows": audit.follows,
        "planned": sealed.plan.n_trials,
        "sealed": audit.listed,
        "counted": audit.counted,
        "deviations": [msgspec.to_builtins(each) for each in audit.deviations],
    }
