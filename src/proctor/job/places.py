"""Where a job's relative paths start from, so that it can be gone on with from anywhere.

A job's paths start from the directory in which it was begun, and stand in their own words in each
trial's config.json, which is how harbor recognises its trials. So whoever resumes a job works from
that directory, wherever the command was given: the process changes to it, and back at the end.
"""

from collections.abc import Iterator
from pathlib import Path

from proctor.harbor.configs import JobConfig


def find_origin(directory: Path, recorded: str | None, config: JobConfig) -> Path:
    """The directory that the relative paths of a job start from.

    The recorded one, or one seen from where the job lies, or the present one: the first from
    which everything that the config names is there.
    """
    candidates = [place for place in _candidates(directory, recorded, config) if place.is_dir()]
    wanted = list(_relative_paths(config))
    for candidate in candidates:
        if all((candidate / path).exists() for path in wanted):
            return candidate
    return candidates[0] if candidates else Path.cwd()


def find_trials_dir(directory: Path, origin: Path, config: JobConfig) -> Path:
    """The job's directory in the words of its config, where those still lead there."""
    told = config.jobs_dir / config.job_name
    try:
        return told if (origin / told).samefile(directory) else directory
    except OSError:
        return directory


def _candidates(directory: Path, recorded: str | None, config: JobConfig) -> Iterator[Path]:
    if recorded is not None:
        yield Path(recorded)
    # A job of a relative jobs_dir lies at a known distance from where it was begun.
    where = directory.absolute()
    below = (config.jobs_dir / config.job_name).parts
    if not config.jobs_dir.is_absolute() and where.parts[-len(below) :] == below:
        yield where.parents[len(below) - 1]
    yield Path.cwd()


def _relative_paths(config: JobConfig) -> Iterator[Path]:
    places = [dataset.path for dataset in config.datasets]
    places += [dataset.registry_path for dataset in config.datasets]
    places += [task.path for task in config.tasks if task.git_url is None]
    places += [path for agent in config.agents for path in agent.skills]
    for path in (*places, *config.extra_instruction_paths):
        if path is not None and not path.is_absolute() and not str(path).startswith("~"):
            yield path
