"""`proctor task new`: creates a task to start from."""

import shlex
from pathlib import Path

import click

from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line, write_new_trees
from proctor.task.scaffold import render_task


@click.command("new")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    type=PATH,
    default="tasks",
    show_default=True,
    metavar="DIR",
    help="Directory of tasks to create it in.",
)
@json_option
def command(name: str, output: str, as_json: bool) -> int:
    """Create a task that passes with its solution and fails without it.

    Writes DIR/NAME with task.toml, an instruction, a Dockerfile, a solution and tests, and never
    overwrites anything. The new task asks for a file with one word. Edit the instruction, and the
    other files where their comments say so; `proctor task try` checks the task. With
    ORGANISATION/NAME, task.toml names the organisation too.

    Example: proctor task new fix-bug
    """
    files = render_task(name)
    directory = Path(output) / name.rpartition("/")[2]
    write_new_trees({directory: files})
    task = shlex.quote(str(directory))
    next_commands = [f"proctor task try {task}", f"proctor task try {task} --shell"]
    if as_json:
        facts = {"task": str(directory), "files": list(files), "next_commands": next_commands}
        print_json(facts)
        return 0
    print_line(f"{directory}: a new task")
    for path in files:
        print_line(f"  {path}")
    print_line()
    print_line("Next: edit these files, then check the task, or look around in its environment")
    for line in next_commands:
        print_line(f"  {line}")
    return 0
