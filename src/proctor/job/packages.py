"""Find packages of tasks and datasets in harbor's local cache. Does not fetch.

A task's package is a directory named after its digest. A dataset's package is a list of such
digests, dataset.toml, and optionally a metric.py. harbor caches only the files published with it,
so the list may be missing.
"""

import re
import tomllib
from pathlib import Path

from pydantic import BaseModel, ValidationError

from proctor.errors import TaskError
from proctor.harbor.configs import DatasetConfig, TaskConfig
from proctor.job.cache import Caches
from proctor.task.parse import read_text

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PREFIX = "sha256:"
_LARGEST = 1 << 24


class _TaskEntry(BaseModel, defer_build=True):
    name: str
    digest: str


class _Manifest(BaseModel, defer_build=True):
    tasks: list[_TaskEntry] = []


def find_package_task(wanted: TaskConfig, caches: Caches) -> Path:
    """Find the directory of a task's package; its name is the digest."""
    base = wanted.download_dir.expanduser() if wanted.download_dir else caches.packages
    name = _checked_name(wanted.name or "")
    ref = f"@{wanted.ref}" if wanted.ref else ""
    how = f"get it with `harbor task download {name}{ref} --cache`"
    return _find_version(base / name, wanted.ref, f"task {name}{ref}", how)


def find_package_dataset(wanted: DatasetConfig, caches: Caches) -> Path:
    """Find the directory of a dataset's package, with its dataset.toml.

    Raises:
        TaskError: it is not in the cache, or its list of tasks is not.
    """
    name = _checked_name(wanted.name or "")
    ref = wanted.ref or wanted.version
    shown = f"{name}@{ref}" if ref else name
    how = (
        f"get it with `harbor dataset download {shown} -o DIR` and run it with "
        f"-p DIR/{name.partition('/')[2]}"
    )
    found = _find_version(caches.datasets / name, ref, f"dataset {shown}", how)
    if not (found / "dataset.toml").is_file():
        raise TaskError(f"dataset {shown}: {found} has no dataset.toml to list its tasks; {how}")
    return found


def package_task_configs(directory: Path, wanted: DatasetConfig) -> list[TaskConfig]:
    """The tasks of a dataset's package, in its order, as config entries.

    Raises:
        TaskError: its dataset.toml is invalid.
    """
    path = directory / "dataset.toml"
    try:
        manifest = _Manifest.model_validate(tomllib.loads(read_text(path, _LARGEST)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise TaskError(f"{path}: {place}: {first['msg']}") from error
    except (OSError, ValueError) as error:
        raise TaskError(f"{path}: cannot be used: {error}") from error
    return [
        TaskConfig(
            name=_checked_name(task.name),
            ref=task.digest,
            overwrite=wanted.overwrite,
            download_dir=wanted.download_dir,
            source=wanted.name,
        )
        for task in manifest.tasks
    ]


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or ".." in name:
        raise TaskError(f"{name!r} is not a package; expected organisation/name")
    return name


def _find_version(place: Path, ref: str | None, shown: str, how: str) -> Path:
    if ref is not None and ref.startswith(_PREFIX):
        digest = ref.removeprefix(_PREFIX)
        if not _DIGEST.fullmatch(digest):
            raise TaskError(f"{shown}: {ref!r} is not a digest; expected sha256: and 64 hex digits")
        if not (place / digest).is_dir():
            raise TaskError(f"{shown}: not in harbor's cache ({place / digest}); {how}")
        return place / digest
    versions = _list_versions(place)
    if not versions:
        raise TaskError(f"{shown}: not in harbor's cache ({place}); {how}")
    if len(versions) > 1:
        named = ", ".join(f"@{_PREFIX}{version}" for version in versions)
        raise TaskError(
            f"{shown}: harbor's cache has {len(versions)} versions and cannot tell which is meant; "
            f"expected one of {named}"
        )
    return place / versions[0]


def _list_versions(place: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in place.iterdir() if _DIGEST.fullmatch(entry.name))
    except OSError:
        return []
