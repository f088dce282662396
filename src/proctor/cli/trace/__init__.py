"""`proctor trace`: commands about traces, one module each.

summary, summary_text   summarizes trials
classify, judges        labels turns by their purpose: by rules, or by models
convert                 converts traces
writer                  the writer for harnesses
select_trials           the trials that a command selects
"""

import click

from proctor.cli.main import CommandTable

# Every command and the first line of its help; implemented in proctor.cli.trace.NAME.
COMMANDS = {
    "summary": (
        "Summarize traces: turns, tool calls, errors, loops, time, tokens, cause of failure."
    ),
    "classify": "Label each turn of an agent by its purpose.",
    "convert": "Convert any trace to a trajectory or an ATIF file.",
    "writer": "Print the trajectory writer, one Python file.",
}


class TraceCommands(CommandTable):
    """The commands about traces."""

    package = "proctor.cli.trace"
    commands_by_name = COMMANDS


@click.group("trace", cls=TraceCommands)
def command() -> None:
    """Summarize, classify or convert traces.

    Example: proctor trace summary jobs/nightly/fix-bug__a1B2c3D
    """
