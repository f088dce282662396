"""A requested job, from the command line or from its own files, ready to be planned."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from proctor.errors import JobError
from proctor.harbor.configs import JobConfig
from proctor.harbor.documents import is_trial
from proctor.harbor.env import is_sensitive
from proctor.job.existing import Existing, load_existing
from proctor.job.images import choose_environment
from proctor.job.options import ExecutionOptions, JobOptions, LedgerOptions, ResumeOptions
from proctor.job.planning import (
    Fetching,
    JobPlan,
    Place,
    Prepared,
    check_kinds,
    plan_job,
    prepare,
)
from proctor.job.secrets import check_secrets_used, check_variables, fill_secrets
from proctor.job.settings import ModelSettings, Settings
from proctor.job.store import CONFIG, STATE
from proctor.ledger.place import find_url, ledger_directory
from proctor.record.ids import check_id
from proctor.sentence import shown

# Comparing an existing job with the requested one: which keys differ
#
# Keys that affect neither which trials there are nor what they do may differ: the job's directory
# and name, concurrency, verbosity. Values of secrets are not compared because files do not contain
# them.


_FREE = {"job_name", "jobs_dir", "debug", "quiet", "n_concurrent_trials"}
_MOST_SHOWN = 5


def check_same_job(directory: str, there: JobConfig, asked: JobConfig) -> None:
    """Refuse to resume a job with a different config."""
    left = there.model_dump(mode="json", exclude=_FREE)
    right = asked.model_dump(mode="json", exclude=_FREE)
    _refuse(directory, list(_differences(left, right, "")))


def check_same_settings(directory: str, there: Settings, asked: Settings) -> None:
    """Refuse to resume a job with different settings."""
    left, right = there.model_dump(mode="json"), asked.model_dump(mode="json")
    _refuse(directory, list(_differences(left, right, "")))


def _refuse(directory: str, differences: list[str]) -> None:
    if not differences:
        return
    more = len(differences) - _MOST_SHOWN
    listed = "; ".join(differences[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    raise JobError(
        f"{directory}: there is a job of this name already, with another config: {listed}. "
        "Give the new job another name with --job-name, or resume the existing one with "
        "`proctor resume`"
    )


def _differences(there: object, asked: object, where: str) -> Iterator[str]:
    if isinstance(there, Mapping) and isinstance(asked, Mapping):
        for key in dict.fromkeys([*there, *asked]):
            # Redacted in the existing config, so the values always differ.
            if not (where.endswith("env.") and is_sensitive(key)):
                name = f"{where}{key}"
                yield from _difference_at(there.get(key), asked.get(key), name)
        return
    if there != asked:
        yield f"{where.rstrip('.')} is {shown(there)} there and {shown(asked)} now"


def _difference_at(there: object, asked: object, name: str) -> Iterator[str]:
    if isinstance(there, list) and isinstance(asked, list):
        # A set in harbor, written as a list in arbitrary order.
        if name.endswith("_exceptions"):
            there, asked = sorted(map(str, there)), sorted(map(str, asked))
        elif len(there) == len(asked):
            for index, (left, right) in enumerate(zip(there, asked, strict=True)):
                yield from _differences(left, right, f"{name}[{index}].")
            return
    yield from _differences(there, asked, f"{name}.")


# Resolving a job's relative paths, so that it can be resumed from anywhere
#
# A job's paths are relative to the directory in which it was begun, and each trial's config.json
# repeats them verbatim, which is how harbor recognises its trials. Therefore resume changes the
# process's working directory to that directory, and back at the end.


def find_origin(directory: Path, recorded: str | None, config: JobConfig) -> Path:
    """Return the directory that the relative paths of a job start from.

    The recorded one, one derived from the job's location, or the current one: the first in which
    everything that the config names exists.
    """
    candidates = [place for place in _candidates(directory, recorded, config) if place.is_dir()]
    wanted = list(_relative_paths(config))
    for candidate in candidates:
        if all((candidate / path).exists() for path in wanted):
            return candidate
    return candidates[0] if candidates else Path.cwd()


def find_trials_dir(directory: Path, origin: Path, config: JobConfig) -> Path:
    """The job's directory as its config spells it, if that still leads there."""
    configured = config.jobs_dir / config.job_name
    try:
        return configured if (origin / configured).samefile(directory) else directory
    except OSError:
        return directory


def _candidates(directory: Path, recorded: str | None, config: JobConfig) -> Iterator[Path]:
    if recorded is not None:
        yield Path(recorded)
    # A job with a relative jobs_dir lies at a known depth below where it was begun.
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


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A job to run or resume."""

    prepared: Prepared
    place: Place
    is_begun: bool
    """Whether the job exists already."""
    options: ExecutionOptions
    n_concurrent: int | None
    """Number of concurrent trials; None: as many as fit on a cluster."""
    ledger: LedgerOptions | None
    """None: do not seal the trials."""
    fetching: Fetching
    """What was fetched for it; of images in a dry run, what would be."""
    known: frozenset[str] = frozenset()
    """Notes about the plan that the caller reports itself."""

    def plan(self) -> JobPlan:
        """Plan the job by the current contents of its directory."""
        existing = load_existing(self.place.directory)
        if not self.is_begun:
            prepared = self.prepared
            _check_same(self.place.directory, existing, prepared.config, prepared.settings)
        return plan_job(self.prepared, existing, self.place, self.options.also)


async def request_run(options: JobOptions) -> Request:
    """Make the request for a command line."""
    config = options.config
    check_id(config.job_name, "job name")
    trials_dir = config.jobs_dir.expanduser() / config.job_name
    directory = trials_dir.absolute()
    _check_may_be_there(directory)
    existing = load_existing(directory)
    _check_same(directory, existing, config, options.settings)
    chosen = choose_environment(config.environment, options.environment_why)
    if existing.config is not None and existing.state is not None:
        # Keep the reason that was recorded when the job was begun.
        chosen = existing.state.environment
    check_variables(config, options.host)
    check_kinds(config, options.settings.models)
    fetching = _choose_fetching(options, existing)
    prepared = await prepare(
        config,
        options.settings,
        chosen,
        options.host,
        is_auto=options.is_auto and options.open_executor is None,
        fetching=fetching,
    )
    options.approve([planned.task for planned in prepared.resolved.tasks], config)
    cwd = Path(existing.state.cwd) if existing.state else Path.cwd()
    return Request(
        prepared=prepared,
        place=Place(directory=directory, trials_dir=trials_dir, cwd=cwd),
        is_begun=existing.config is not None,
        options=options,
        n_concurrent=_choose_concurrency(options, prepared.config.n_concurrent_trials),
        ledger=options.ledger,
        fetching=fetching,
        known=options.known,
    )


class OpenJob(msgspec.Struct, frozen=True):
    """An existing job and the directory its paths start from."""

    directory: Path
    """Absolute."""
    config: JobConfig
    """Secrets are redacted."""
    existing: Existing
    origin: Path

    @property
    def settings(self) -> Settings:
        """Its settings; the defaults for a job that harbor began."""
        state = self.existing.state
        if state is None:
            # harbor began it: the trials that it ran reached their models directly.
            return Settings(models=ModelSettings(gateway=False))
        return state.read_settings(f"{self.directory}/{STATE}")


@contextlib.contextmanager
def opened_job(directory: Path) -> Iterator[OpenJob]:
    """Open an existing job, and work in the directory where it was begun until the context ends.

    Raises:
        JobError: there is no job that can be resumed.
    """
    directory = directory.absolute()
    _check_is_job(directory)
    existing = load_existing(directory)
    if existing.config is None:
        found = "no such directory" if not directory.is_dir() else f"no {CONFIG} in it"
        raise JobError(
            f"{directory}: {found}; expected the directory of a job that was started with "
            "`proctor run` or `harbor run`"
        )
    recorded = existing.state.cwd if existing.state else None
    origin = find_origin(directory, recorded, existing.config)
    with contextlib.chdir(origin):
        yield OpenJob(directory, existing.config, existing, origin)


def _check_may_be_there(directory: Path) -> None:
    try:
        directory.lstat()
    except NotADirectoryError as error:
        file = next(path for path in directory.parents if path.is_file())
        raise JobError(f"{file}: a file; expected a directory in which jobs are kept") from error
    except OSError:
        # Missing or unreadable: creating the job reports it.
        return


def _check_is_job(directory: Path) -> None:
    if directory.is_file():
        raise JobError(f"{directory}: a file; expected the directory of a job")
    if is_trial(str(directory)):
        raise JobError(
            f"{directory}: this is one trial; expected the job directory around it "
            f"({directory.parent})"
        )


async def request_resume(job: OpenJob, options: ResumeOptions, *, is_run: bool = True) -> Request:
    """Make the request for the rest of a job; secrets and variables are needed to run it."""
    trials_dir = find_trials_dir(job.directory, job.origin, job.config)
    # Before anything is fetched: it may be on another machine, which does not answer. A preview of
    # a job that was admitted when it began needs none.
    ledger = _find_ledger(job, options) if is_run else None
    check_secrets_used(job.config, options.secrets, f"{job.directory}/{CONFIG}")
    config = job.config
    if is_run:
        config = fill_secrets(config, options.secrets, options.host, f"{job.directory}/{CONFIG}")
        check_variables(config, options.host, job.directory)
    state = job.existing.state
    why = "the one that the job was started with"
    chosen = state.environment if state else choose_environment(config.environment, why)
    if is_run:
        check_kinds(config, job.settings.models)
    is_auto = options.is_auto and options.open_executor is None
    fetching = _choose_fetching(options, job.existing)
    prepared = await prepare(
        config,
        job.settings,
        chosen,
        options.host,
        is_auto=is_auto,
        fetching=fetching,
    )
    if is_run:
        options.approve([planned.task for planned in prepared.resolved.tasks], config)
    return Request(
        prepared=prepared,
        place=Place(directory=job.directory, trials_dir=trials_dir, cwd=job.origin),
        is_begun=True,
        options=options,
        n_concurrent=options.n_concurrent
        or _choose_concurrency(options, prepared.config.n_concurrent_trials),
        ledger=ledger,
        fetching=fetching,
    )


def _choose_fetching(options: ExecutionOptions, existing: Existing) -> Fetching:
    """What to fetch: for a job that was begun, only the images that it was begun on."""
    begun = existing.state.images if existing.state else {}
    is_new = existing.config is None
    return Fetching(report=options.report, images=options.fetching, begun=None if is_new else begun)


def _choose_concurrency(options: ExecutionOptions, configured: int) -> int | None:
    """Number of concurrent trials; None: as many as fit on a cluster."""
    return None if options.is_auto and options.open_executor is not None else configured


def _find_ledger(job: OpenJob, options: ResumeOptions) -> LedgerOptions | None:
    """The ledger that was asked for, else the one that the job was started with."""
    state, directory = job.existing.state, options.ledger
    if not options.is_sealed:
        return None
    if directory is None and state is not None and state.ledger:
        # Earlier versions wrote the path of a copy, whose server may know more by now.
        named = find_url(Path(state.ledger)) or state.ledger
        directory = ledger_directory(named, options.host)
    return None if directory is None else LedgerOptions(directory, options.key_file)


def _check_same(directory: Path, existing: Existing, config: JobConfig, settings: Settings) -> None:
    if existing.config is not None:
        check_same_job(str(directory), existing.config, config)
        if existing.state is not None:
            there = existing.state.read_settings(f"{directory}/{STATE}")
            check_same_settings(str(directory), there, settings)
