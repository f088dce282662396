"""`proctor trace writer`: prints the writer for harnesses."""

from importlib import resources
from pathlib import Path

import click

from proctor.cli.options import PATH, STDOUT
from proctor.cli.output import json_option, print_json, print_line, write_new_file
from proctor.cli.stdout import send
from proctor.digest import sha256_hex


@click.command("writer")
@click.option(
    "-o", "--output", type=PATH, help="Write to this file instead of stdout; never overwrite one."
)
@json_option
def command(output: str | None, as_json: bool) -> int:
    """Print the trajectory writer, one Python file.

    It needs Python 3.8 or later and nothing else: copy it into a container, where a harness imports
    it. It writes the file that $PROCTOR_TRAJECTORY names, which proctor sets for every agent. Its
    first lines explain how to use it.

    Example: proctor trace writer > trajectory_writer.py
    """
    output = None if output == STDOUT else output
    source = resources.files("proctor.traces").joinpath("writer.py").read_bytes()
    facts: dict[str, object] = {
        "name": "trajectory_writer.py", "sha256": sha256_hex(source), "size": len(source)
    }  # fmt: skip
    if output is not None:
        write_new_file(Path(output), source, [])
    if as_json:
        print_json(facts | ({"path": output} if output else {"source": source.decode()}))
    elif output is not None:
        print_line(f"{output}: written; sha256 {facts['sha256']}")
    else:
        send(source.decode().removesuffix("\n"))
    return 0
