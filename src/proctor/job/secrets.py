"""Fill in secrets that a job needs and its files do not contain."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import JobError
from proctor.harbor.configs import JobConfig
from proctor.harbor.env import find_template
from proctor.job.config_file import fill_redacted, find_redacted
from proctor.job.store import CONFIG


def fill_secrets(
    config: JobConfig, given: Mapping[str, str], host: Mapping[str, str], where: str
) -> JobConfig:
    """Replace every redacted value: by the given one, else by the host's variable.

    Raises:
        JobError: names those that are neither given nor set on the host.
    """
    filled = fill_redacted(config, {**host, **given})
    missing = sorted({redacted.name for redacted in find_redacted(filled)})
    if missing:
        example = f"--ae {missing[0]}=…"
        raise JobError(
            f"{where}: the values of {', '.join(missing)} were left out when the job was written "
            f"down, and are needed to run it; give them again ({example}), or set variables of "
            "these names"
        )
    return filled


def check_secrets_used(config: JobConfig, given: Mapping[str, str], where: str) -> None:
    """Check that every given value replaces a redacted one.

    Raises:
        JobError: one would not be used.
    """
    redacted = sorted({found.name for found in find_redacted(config)})
    for name in sorted(set(given).difference(redacted)):
        wanted = f"expected one of {', '.join(redacted)}" if redacted else "it left none out"
        raise JobError(
            f"--ae {name}: {where} has left out no value of this name; {wanted}. Variables that "
            "the job takes from the host are set there"
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A host variable that a job's config names."""

    name: str
    where: str
    """The key of the config, such as agents[0].env.API_KEY."""
    option: str | None
    """The command-line option that sets it instead."""


def check_variables(
    config: JobConfig, host: Mapping[str, str], resumed: Path | None = None
) -> None:
    """Check that the host has every variable that the config refers to.

    `resumed` is the directory of a job to resume, whose config cannot change.

    Raises:
        JobError: some are not set; says which, where they are named, and what to type.
    """
    missing = [wanted for wanted in _find_wanted(config) if wanted.name not in host]
    if not missing:
        return
    names = list(dict.fromkeys(wanted.name for wanted in missing))
    is_set, them = ("is", "it") if len(names) == 1 else ("are", "them")
    named = ", ".join(f"{wanted.where} is ${{{wanted.name}}}" for wanted in missing)
    sentence = (
        f"{', '.join(names)} {is_set} not set among the host's variables, from which the job takes "
        f"{them}: {named}"
    )
    values = " ".join(f"{name}=…" for name in names)
    if resumed is not None:
        command = f"{values} proctor resume {shlex.quote(str(resumed))}"
        raise JobError(f"{resumed / CONFIG}: {sentence}. Type: {command}")
    options = " ".join(wanted.option for wanted in missing if wanted.option)
    instead = f", or give values instead: {options}" if options else ""
    raise JobError(f"{sentence}. Type: export {values}{instead}")


def _find_wanted(config: JobConfig) -> Iterator[_Wanted]:
    tables = [
        (f"agents[{index}].env", agent.env, "--ae") for index, agent in enumerate(config.agents)
    ]
    tables.append(("environment.env", config.environment.env, ""))
    tables.append(("verifier.env", config.verifier.env, "--ve"))
    for where, env, flag in tables:
        for key, value in env.items():
            template = find_template(value)
            if template is not None and template.default is None:
                option = f"{flag} {key}=…" if flag else None
                yield _Wanted(template.name, f"{where}.{key}", option)
