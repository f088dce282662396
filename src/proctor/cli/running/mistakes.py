"""Common mistakes on the command line of `proctor run`; each error names what was meant."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from proctor.agents.command import HOME, RUN_BY
from proctor.agents.kinds import agent_names
from proctor.errors import InputError
from proctor.harbor.configs import NULL, AgentConfig, EnvironmentConfig, JobConfig
from proctor.sentence import printable

# Top directories that environments have too: a file of the same name may well exist there.
_ALSO_INSIDE = frozenset(
    [
        *("bin", "dev", "etc", "lib", "lib64", "opt", "proc", "root", "run", "sbin", "srv", "sys"),
        *("tmp", "usr", "var", "app", "installed-agent", "logs", "solution", "tests", "workspace"),
    ]
)
_HOMES = frozenset({"dev", "root", "tmp"})
# Programs whose next word is a file to run, even if it has no directory.
_INTERPRETER = re.compile(
    r"(.*/)?(ba|z|da)?sh|(.*/)?(python[0-9.]*|node|deno|bun|ruby|perl|uv|run)"
)


def check_no_extra(command: str, extra: Sequence[str]) -> None:
    """Check that nothing was given without an option.

    Raises:
        UsageError: something was; the message names its option.
    """
    if not extra:
        return
    word = extra[0]
    if word in agent_names():
        meant = f"to run the agent {word}, write `proctor {command} -p TASKS -a {word}`"
    elif Path(word).is_dir():
        meant = f"to run these tasks, write `proctor {command} -p {shlex.quote(word)} -a AGENT`"
    elif Path(word).is_file():
        options = _render_tree(word, word)
        meant = f"to run this program as the agent, write `proctor {command} -p TASKS {options}`"
    else:
        meant = "tasks are given with -p DIRECTORY, an agent with -a NAME or --command CMD"
    raise click.UsageError(f"{printable(word)} is not an option value; {printable(meant)}")


def check_agents(config: JobConfig) -> None:
    """Check that an agent was named, and that commands do not name files of this machine.

    harbor runs the oracle if no agent is named. A score of 1.0 from the tasks' own solutions looks
    like an agent's, so the command line asks for a name; `JobConfig` keeps harbor's default.

    Raises:
        UsageError: no agent was named.
        InputError: a command names a file that its environment does not have.
    """
    if "agents" not in config.model_fields_set:
        raise click.UsageError(
            "no agent; pass --command CMD to run your own program, or -a NAME: "
            f"{', '.join(agent_names())}, or one of harbor's. `-a oracle` runs the tasks' own "
            "solutions"
        )
    for agent in config.agents:
        if agent.name is not None and "/" in agent.name and Path(agent.name).is_file():
            raise InputError(
                f"--agent is {printable(agent.name)}, a file; expected a name. To run the program, "
                f"write `{printable(_render_tree(agent.name, agent.name))}`"
            )
        if _is_isolated(config.environment):
            _check_command(agent)


def _is_isolated(environment: EnvironmentConfig) -> bool:
    """Whether an environment is one of proctor's that do not share the host's files."""
    return environment.import_path != NULL and (
        environment.import_path is None or environment.import_path.startswith("proctor.")
    )


def _check_command(agent: AgentConfig) -> None:
    command = agent.kwargs.get("command")
    if agent.name != "command" or not isinstance(command, str):
        return
    word = next(_find_host_files(command), None)
    if word is None:
        return
    tree = agent.kwargs.get("tree")
    options = _render_tree(word, command, tree if isinstance(tree, str) else None)
    raise InputError(
        f"the command names {printable(word)}, a file of this machine, but it runs inside the "
        "task's environment. To copy the file's directory there, write "
        f"`{printable(options)}`; to use a file of the environment, write its full path"
    )


def _render_tree(word: str, command: str, tree: str | None = None) -> str:
    """The options that copy a file's directory to the environment and run the file there."""
    place = Path.cwd() / os.path.normpath(word)
    above = Path(tree) if tree is not None and place.is_relative_to(tree) else place.parent
    inside = f"{HOME}/{place.relative_to(above)}"
    if word == command and not os.access(place, os.X_OK):
        inside = RUN_BY.get(place.suffix, "bash ") + inside
    shown = os.path.relpath(above) if above.is_relative_to(Path.cwd()) else str(above)
    line = shlex.quote(command.replace(word, inside))
    return f"--agent-tree {shlex.quote(shown)} --command {line}"


def _find_host_files(command: str) -> Iterator[str]:
    """Words of a command that are files here, and not likely to be in an environment."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    before = ""
    try:
        for word in lexer:
            # What follows < or > is data, which the command itself may create.
            is_program = "/" in word or _INTERPRETER.fullmatch(before)
            if is_program and before not in (">", ">>", "<") and _is_only_here(word):
                yield word
            before = word
    except ValueError:
        return  # an unclosed quote, which the shell reports


def _is_only_here(word: str) -> bool:
    if not Path(word).is_file():
        return False
    if not word.startswith("/"):
        return True
    top, here = Path(word).parts[1], Path.cwd()
    if top not in _ALSO_INSIDE:
        return True
    # A project below /root, /tmp or /dev/shm is this machine's; other files may be the image's.
    return top in _HOMES and len(here.parts) > len(("/", top)) and Path(word).is_relative_to(here)
