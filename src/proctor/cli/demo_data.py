"""`proctor demo-data`: writes made-up runs to look at."""

import sys
from pathlib import Path

import click

from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.stdout import print_stderr
from proctor.demo.making import DemoSize, make_demo


@click.command("demo-data")
@click.argument("directory", metavar="DIR", type=PATH)
@json_option
def command(directory: str, as_json: bool) -> int:
    """Write made-up runs to look at.

    DIR gets tasks, job directories, and a ledger with all of their trials sealed. No agent is run
    and no model is called: agents, models, tasks, costs and traces are invented, and the numbers
    say nothing about anything real. There are 4 agents, 3 models, 30 tasks and 5 attempts, with
    errors of several kinds, and an agent that plants its reward. The same bytes are written every
    time, signed with a public demo key. DIR must be empty or missing.

    Example: proctor demo-data demo
    """
    size, place = DemoSize(), Path(directory)
    is_watched = sys.stderr is not None and sys.stderr.isatty()
    make_demo(place, size, (lambda name: print_stderr(f"sealed {name}")) if is_watched else None)
    ledger = place / "ledger"
    if as_json:
        print_json(
            {
                "experiments": [each.name for each in size.experiments],
                "trials": size.trials,
                "jobs": str(place / "jobs"),
                "ledger": str(ledger),
                "key": str(place / "demo-key"),
            }
        )
        return 0
    print_line(f"{ledger}: {size.trials:,} made-up trials in {len(size.experiments)} experiments")
    print_line(f"Look at them:  proctor view {ledger}")
    return 0
