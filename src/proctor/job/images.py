"""Determine the images of a job's environments, and fetch them, before any is started.

An image is part of a slot's key: another image under the same name makes new slots. Images of a
registry are pulled when a job is begun, and on record in proctor.json: `resume` runs on the same
ones, whatever their tags mean by then. The host's own files, `--base host`, are not part of a key
because a machine's packages change from day to day. If they changed since the job was begun, that
is reported, and each record has its own pin. Third-party environments report nothing in advance.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import msgspec

from proctor.environments.kinds import environment_name_for
from proctor.errors import ImageError, SandboxError, UnsupportedError
from proctor.harbor.configs import HOST_BASE, NULL, SANDBOX, EnvironmentConfig
from proctor.job.store import ChosenEnvironment
from proctor.task.directory import Task

_MOST_SHOWN = 5


def show_nothing(_name: str, _done: int, _total: int) -> None:
    """Show no progress."""


class ImageFetching(msgspec.Struct, frozen=True, kw_only=True):
    """How images that a job's tasks name are fetched from registries."""

    is_offline: bool = False
    """Contact no registry: an image that is missing is an error."""
    is_dry_run: bool = False
    """Pull nothing: registries are only asked how much there is to download."""
    show: Callable[[str, int, int], None] = show_nothing
    """Called with the name of an image, the bytes that arrived, and their total."""
    pins: Mapping[str, str] | None = None
    """Digests of the images that a recorded trial ran on, by name, for a job that runs it again;
    None for any other job."""
    uses_host: bool = False
    """The host's files are used in the place of images that are missing: none is pulled."""


def parse_pins(images: str) -> dict[str, str]:
    """The digests of the images in a sandbox's record, by name; none for the host's files."""
    pins = (image.rpartition("@sha256:") for image in images.split(", "))
    return {
        name: digest for name, _, digest in pins if name and not name.startswith(f"{HOST_BASE}:")
    }


def choose_environment(environment: EnvironmentConfig, why: str) -> ChosenEnvironment:
    """The environment kind that a config names, and its base."""
    return ChosenEnvironment(environment_name_for(environment), why, _find_base(environment))


def find_images(environment: EnvironmentConfig, task: Task) -> tuple[Any, ...]:
    """The stored images (roots.images.Image) of which a task's root will be made.

    The one that it runs on is the first. Empty if they are unknown in advance.
    """
    if environment.import_path != SANDBOX:
        return ()
    try:
        module = import_module("proctor.environments.sandbox.roots.bases")
        found: tuple[Any, ...] = module.find_images(
            task.environment_directory,
            task.config.environment.docker_image,
            _base_of(environment),
            force=environment.force_build,
            is_external=is_external(environment),
        )
    except (ImageError, SandboxError):
        # Its trials will report the problem.
        return ()
    return found


async def fetch_images(
    environment: EnvironmentConfig,
    tasks: Iterable[Task],
    fetching: ImageFetching | None,
    begun: Mapping[str, str] | None,
    host: Mapping[str, str],
) -> None:
    """Pull the images that the tasks of a job name and the store lacks, and keep all of them.

    None of them is removed while this process runs, even if the store exceeds its limit.
    `begun` has the digests of a job that was begun before, by the names of its images; None for a
    new job.

    Raises:
        ImageError: one cannot be pulled, or another image has its name now.
        UnsupportedError: none may be pulled, and the environment or the builder pulls by itself.
    """
    tasks = list(tasks)
    if fetching is not None and fetching.is_offline:
        _check_offline(environment, tasks)
    if fetching is None or fetching.is_dry_run:
        return
    wanted = find_wanted(environment, tasks, fetching, begun)
    if not wanted:
        return
    stopped = threading.Event()
    pulling = asyncio.ensure_future(asyncio.to_thread(_pull_all, wanted, fetching, host, stopped))
    try:
        await asyncio.shield(pulling)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait([pulling])
        # It says that it was stopped, which is known.
        pulling.exception()
        raise


def find_wanted(
    environment: EnvironmentConfig,
    tasks: Iterable[Task],
    fetching: ImageFetching | None,
    begun: Mapping[str, str] | None,
) -> dict[str, str]:
    """The references of the images that a job pulls before it starts, by the names to store them.

    Nothing is pulled for a new job with --base, which says what to use instead; a job that runs a
    recorded trial again has the image of its record.
    """
    if environment.import_path != SANDBOX or fetching is None or fetching.uses_host:
        return {}
    if begun is not None:
        return _find_lost(begun)
    if fetching.pins is not None:
        return _find_recorded(environment, list(tasks), fetching.pins)
    # Also with --base: what is there is kept.
    missing = _find_missing(environment, tasks)
    return {} if "base" in environment.kwargs else missing


def _check_offline(environment: EnvironmentConfig, tasks: Iterable[Task]) -> None:
    """Check that --offline can be kept: only the sandbox leaves pulling to us."""
    if environment.import_path == SANDBOX and is_external(environment):
        builder = environment.kwargs["builder"]
        raise UnsupportedError(
            f"--offline cannot be combined with --builder {builder}, which pulls images by "
            "itself; use --builder sandbox"
        )
    if environment.import_path not in (SANDBOX, NULL):
        raise UnsupportedError(
            f"--offline cannot be combined with -e {environment_name_for(environment)}, "
            "which pulls images by itself; use -e sandbox"
        )
    if environment.import_path == SANDBOX and environment.kwargs.get("builder") != "sandbox":
        find = import_module("proctor.environments.sandbox.roots.bases").find_other_builder
        for task in tasks:
            image = task.config.environment.docker_image
            program = find(task.environment_directory, image, force=environment.force_build)
            if program is not None:
                raise UnsupportedError(
                    f"--offline: {task.environment_directory / 'Dockerfile'} would be built with "
                    f"{program}, which pulls images by itself; --builder sandbox refuses it instead"
                )


def _find_missing(environment: EnvironmentConfig, tasks: Iterable[Task]) -> dict[str, str]:
    """Keep the images that are there; return what is to be pulled, by the names to store it under.

    They are kept first, so that no other process removes one that was found.
    """
    hold = import_module("proctor.environments.sandbox.roots.bases").hold_images
    wanted: dict[str, str] = {}
    for task in tasks:
        try:
            names = hold(
                task.environment_directory,
                task.config.environment.docker_image,
                force=environment.force_build,
                is_external=is_external(environment),
            )
        except (ImageError, SandboxError):
            # Its trials will report the problem.
            continue
        wanted.update({name: name for name in names})
    return wanted


def _find_recorded(
    environment: EnvironmentConfig, tasks: Sequence[Task], pins: Mapping[str, str]
) -> dict[str, str]:
    """Return what is to be pulled for a recorded trial: what both its task and its record name.

    A stranger's record names nothing else that is pulled.
    """
    for found in (image for task in tasks for image in find_images(environment, task)):
        digest = pins.get(found.name)
        # An image that was imported again is a note.
        if digest is not None and found.layers and found.digest != digest:
            raise ImageError(_explain_moved(found, digest, "the trial ran", "run it again"))
    normalise = import_module("proctor.environments.sandbox.roots.images").normalise_name
    missing = ((name, normalise(name)) for name in _find_missing(environment, tasks))
    return {name: _pin(name, pins[known]) for name, known in missing if known in pins}


def _find_lost(begun: Mapping[str, str]) -> dict[str, str]:
    """Return what is to be pulled by its digest, for a job that was begun on these images.

    Those that are there are kept.
    """
    store = import_module("proctor.environments.sandbox.roots.images").ImageStore()
    wanted: dict[str, str] = {}
    for name, digest in begun.items():
        image = store.find(name)
        if image is None or not store.hold(image):
            wanted[name] = _pin(name, digest)
        elif image.digest != digest:
            raise ImageError(_explain_moved(image, digest, "the job was begun", "resume"))
    return wanted


def _pin(name: str, digest: str) -> str:
    # A tag may have moved since, a digest does not.
    return f"{name.partition('@')[0]}@sha256:{digest}"


def _explain_moved(image: Any, digest: str, what: str, then: str) -> str:
    name = image.name
    return (
        f"{name}: {what} on sha256:{digest[:12]}…, and the name is now "
        f"sha256:{image.digest[:12]}…; run `proctor image pull {_pin(name, digest)} --as {name}`, "
        f"and {then} then"
    )


def _pull_all(
    wanted: Mapping[str, str],
    fetching: ImageFetching,
    host: Mapping[str, str],
    stopped: threading.Event,
) -> None:
    if fetching.is_offline:
        raise ImageError(_refuse(wanted, [f"{name}: not in the image store" for name in wanted]))
    # On use: most jobs pull nothing, and the client takes a while to load.
    pull = import_module("proctor.environments.sandbox.roots.pull")
    store = import_module("proctor.environments.sandbox.roots.images").ImageStore()
    failed: list[str] = []
    for name, reference in wanted.items():
        options = pull.PullOptions(
            env=host,
            now=datetime.now(UTC),
            name=name,
            show=lambda done, total, name=name: fetching.show(name, done, total),
            stopped=stopped,
            is_held=True,
        )
        try:
            pull.pull_image(store, reference, options)
        except ImageError as error:
            failed.append(str(error))
    if failed:
        raise ImageError(_refuse(wanted, failed))


def _refuse(wanted: Mapping[str, str], failed: list[str]) -> str:
    more = len(failed) - _MOST_SHOWN
    listed = "; ".join(failed[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return (
        f"{len(failed)} of {len(wanted)} images that the tasks need could not be obtained: "
        f"{listed}. `proctor image import` takes them from files; --base host runs these tasks on "
        "this machine's own system instead, with the finding base-substituted"
    )


def describe_change(then: ChosenEnvironment, environment: EnvironmentConfig) -> str | None:
    """Describe how the base of the environments changed since; None if it did not."""
    now = _find_base(environment)
    if then.base is None or now is None or then.base == now:
        return None
    return (
        f"the base is {now}; when the job was started it was {then.base}. Trials that are run now "
        "run on the new one, as their records say"
    )


def _find_base(environment: EnvironmentConfig) -> str | None:
    if environment.import_path != SANDBOX:
        return None
    base = _base_of(environment)
    if base != HOST_BASE:
        return base
    try:
        pin: str = import_module("proctor.environments.sandbox.roots.host_base").host_pin()
    except ImageError:
        return base
    return pin


def is_external(environment: EnvironmentConfig) -> bool:
    """Whether another program builds Dockerfiles, and pulls their images itself."""
    return environment.kwargs.get("builder", "auto") not in ("auto", "sandbox")


def _base_of(environment: EnvironmentConfig) -> str:
    return str(environment.kwargs.get("base", HOST_BASE))
