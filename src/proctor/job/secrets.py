"""Values that a job needs and its files do not have: they are asked for again, never made up."""

from collections.abc import Mapping

from proctor.errors import JobError
from proctor.harbor.configs import JobConfig
from proctor.harbor.env import find_template
from proctor.job.config_file import fill_redacted, find_redacted


def fill_secrets(
    config: JobConfig, given: Mapping[str, str], host: Mapping[str, str], where: str
) -> JobConfig:
    """The config with every redacted value replaced: by what was given, else by the host's own.

    Raises:
        JobError: some are neither given nor among the host's variables; names them.
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


def check_wanted(config: JobConfig, given: Mapping[str, str], where: str) -> None:
    """Look whether every value that was given stands for one that the job's files left out.

    Raises:
        JobError: one would be passed to nobody.
    """
    redacted = sorted({found.name for found in find_redacted(config)})
    for name in sorted(set(given).difference(redacted)):
        wanted = f"expected one of {', '.join(redacted)}" if redacted else "it left none out"
        raise JobError(
            f"--ae {name}: {where} has left out no value of this name; {wanted}. Variables that "
            "the job takes from the host are set there"
        )


def check_variables(config: JobConfig, host: Mapping[str, str]) -> None:
    """Look whether the host has every variable that the config takes from it.

    Raises:
        JobError: some are not set; names them.
    """
    tables = [agent.env for agent in config.agents]
    tables += [config.environment.env, config.verifier.env]
    templates = [find_template(value) for table in tables for value in table.values()]
    missing = sorted(
        {wanted.name for wanted in templates if wanted and wanted.default is None} - set(host)
    )
    if missing:
        raise JobError(
            f"the job takes {', '.join(missing)} from the host's variables, where that is not set; "
            "set it, or give a value with --ae or --ve"
        )
