"""Whether a job that is there already is the one that is asked for: which keys differ.

What decides neither which trials there are nor what they do may differ: the job's place and name,
how many run at once, how much is said. Values of secrets are not compared, since a file has none.
"""

from collections.abc import Iterator, Mapping

from proctor.errors import JobError
from proctor.harbor.configs import JobConfig
from proctor.harbor.env import is_sensitive
from proctor.job.settings import Settings
from proctor.sentence import shown

_FREE = {"job_name", "jobs_dir", "debug", "quiet", "n_concurrent_trials"}
_MOST_SHOWN = 5


def check_same_job(directory: str, there: JobConfig, asked: JobConfig) -> None:
    """Refuse to go on with a job under another config.

    Raises:
        JobError: names the keys that differ.
    """
    left = there.model_dump(mode="json", exclude=_FREE)
    right = asked.model_dump(mode="json", exclude=_FREE)
    _refuse(directory, list(_differences(left, right, "")))


def check_same_settings(directory: str, there: Settings, asked: Settings) -> None:
    """Refuse to go on with a job under other settings.

    Raises:
        JobError: names the keys that differ.
    """
    left, right = there.model_dump(mode="json"), asked.model_dump(mode="json")
    _refuse(directory, list(_differences(left, right, "")))


def _refuse(directory: str, differences: list[str]) -> None:
    if not differences:
        return
    more = len(differences) - _MOST_SHOWN
    listed = "; ".join(differences[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    raise JobError(
        f"{directory}: there is a job of this name already, with another config: {listed}. "
        "Give the new job a name of its own with --job-name, or go on with the one that is there "
        "with `proctor resume`"
    )


def _differences(there: object, asked: object, where: str) -> Iterator[str]:
    if isinstance(there, Mapping) and isinstance(asked, Mapping):
        for key in dict.fromkeys([*there, *asked]):
            if not (where.endswith("env.") and is_sensitive(key)):
                name = f"{where}{key}"
                yield from _difference_at(there.get(key), asked.get(key), name)
        return
    if there != asked:
        yield f"{where.rstrip('.')} is {shown(there)} there and {shown(asked)} now"


def _difference_at(there: object, asked: object, name: str) -> Iterator[str]:
    if isinstance(there, list) and isinstance(asked, list):
        if name.endswith("_exceptions"):
            there, asked = sorted(map(str, there)), sorted(map(str, asked))
        elif len(there) == len(asked):
            for index, (left, right) in enumerate(zip(there, asked, strict=True)):
                yield from _differences(left, right, f"{name}[{index}].")
            return
    yield from _differences(there, asked, f"{name}.")
