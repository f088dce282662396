"""Variables of the host that a job's tasks need: checks that they are set, and asks for consent.

Tasks are untrusted. The host variables that they request in [environment.env], [verifier.env] and,
for the oracle, [solution.env] are listed, and the user is asked; `--yes` agrees beforehand.
Variables from --env-file need no consent.
"""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

import click
import msgspec

from proctor.errors import InputError
from proctor.harbor.configs import JobConfig
from proctor.harbor.env import find_template
from proctor.sentence import count_of, printable
from proctor.task.config import TaskConfig
from proctor.task.directory import Task


class Need(msgspec.Struct, frozen=True):
    """A variable that is taken from the host."""

    variable: str
    where: str
    """The table that names it."""
    is_needed: bool
    """Whether it has no default."""


def list_needs(tasks: Iterable[TaskConfig], config: JobConfig) -> list[Need]:
    """The variables that tasks take from the host, each once, in order."""
    needs: dict[Need, None] = {}
    is_oracle = any(agent.name == "oracle" for agent in config.agents)
    for task in tasks:
        environment = _without(task.environment.env, config.environment.env)
        needs.update(_find_in("[environment.env]", environment))
        # Each step of a task has a verifier of its own.
        for marked in (task.verifier, *(step.verifier for step in task.steps or ())):
            verifier = _without(marked.env, config.verifier.env)
            needs.update(_find_in("[verifier.env]", verifier))
        if is_oracle:
            needs.update(_find_in("[solution.env]", task.solution.env))
    return list(needs)


class Consent(msgspec.Struct, frozen=True):
    """Asks for consent before a job creates anything."""

    host: Mapping[str, str]
    given: frozenset[str]
    """Variables from --env-file."""
    yes: bool
    remedy: str = "export what is missing, or give it with --env-file"
    """What to do about a missing variable."""

    def __call__(self, tasks: Sequence[Task], config: JobConfig) -> None:
        """Return if the user agrees."""
        needs = list_needs((task.config for task in tasks), config)
        check_there(needs, self.host, self.remedy)
        if not check_needs(needs, self.given, yes=self.yes):
            raise click.exceptions.Exit(0)


def check_there(needs: Iterable[Need], host: Mapping[str, str], remedy: str) -> None:
    """Check that the host has all required variables.

    Raises:
        InputError: a variable is missing; all that are have been listed on stderr.
    """
    missing = [need for need in needs if need.is_needed and need.variable not in host]
    if missing:
        _print_needs("These host variables are required but not set:", missing)
        raise InputError(
            f"{count_of(len(missing), 'variable')} missing, {missing[0].variable} first; {remedy}"
        )


def check_needs(needs: Iterable[Need], given: Collection[str], *, yes: bool) -> bool:
    """Ask the user; False if they do not agree.

    Raises:
        InputError: there is nobody to ask.
    """
    asked = [need for need in needs if need.variable not in given]
    if not asked or yes:
        return True
    _print_needs("Tasks of this job request these host variables:", asked)
    # Without a terminal nobody can answer, and CI must not pass secrets to tasks by default.
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            "tasks request host variables, and there is no terminal to ask; pass --yes to allow "
            "them"
        )
    return click.confirm("Proceed?", default=True, err=True)


def _without(env: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in names}


def _find_in(where: str, env: Mapping[str, str]) -> dict[Need, None]:
    found = (find_template(value) for value in env.values())
    return {
        Need(template.name, where, is_needed=template.default is None): None
        for template in found
        if template is not None
    }


def _print_needs(heading: str, needs: Sequence[Need]) -> None:
    width = max(len(need.variable) for need in needs)
    click.echo(heading, err=True)
    for need in needs:
        click.echo(f"  {printable(need.variable):<{width}}  {need.where}", err=True)
