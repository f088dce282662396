"""Datasets by name, from a JSON registry: a file, or an address that gives one.

    [{"name", "version", "description", "tasks": [{"name", "git_url", "git_commit_id", "path"}],
      "metrics": [{"type", "kwargs"}]}]

Harbor's own registry, which is no file, is not spoken to.
"""

import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter, ValidationError

from proctor.errors import TaskError
from proctor.files import read_small
from proctor.harbor.configs import DatasetConfig, MetricConfig, TaskConfig
from proctor.job.versions import newest_version
from proctor.sentence import reason_of

_SECONDS = 30
_LARGEST = 1 << 28


class RegistryTask(BaseModel, defer_build=True):
    """A task that a registry names."""

    name: str
    git_url: str | None = None
    git_commit_id: str | None = None
    path: Path


class RegistryDataset(BaseModel, defer_build=True):
    """One version of a dataset."""

    name: str
    version: str
    description: str
    tasks: list[RegistryTask]
    metrics: list[MetricConfig] = []


_REGISTRY = TypeAdapter(list[RegistryDataset])


def load_registry_dataset(wanted: DatasetConfig) -> RegistryDataset:
    """The dataset that a job names, in the version it names or else the newest.

    Raises:
        TaskError: no registry is named, it cannot be read, or the dataset is not in it.
    """
    if wanted.registry_path is not None:
        where = str(wanted.registry_path)
        datasets = _parse(where, _read_file(wanted.registry_path.expanduser()))
    elif wanted.registry_url is not None:
        where = wanted.registry_url
        datasets = _parse(where, _fetch(wanted.registry_url))
    else:
        raise TaskError(
            f"dataset {wanted.name!r}: no registry is named, and harbor's own is not spoken to; "
            "give --registry-path FILE.json or --registry-url URL, or download it with "
            f"`harbor dataset download {_versioned(wanted)}` and run its directory with -p"
        )
    return _find(where, datasets, wanted)


def registry_task_configs(dataset: RegistryDataset, wanted: DatasetConfig) -> list[TaskConfig]:
    """The tasks of a dataset, in its order, as a job's files name them."""
    return [
        TaskConfig(
            path=task.path,
            git_url=task.git_url,
            git_commit_id=task.git_commit_id if task.git_url is not None else None,
            overwrite=wanted.overwrite,
            download_dir=wanted.download_dir,
            source=wanted.name,
        )
        for task in dataset.tasks
    ]


def _versioned(wanted: DatasetConfig) -> str:
    return f"{wanted.name}@{wanted.version}" if wanted.version else f"{wanted.name}"


def _find(
    where: str, datasets: Sequence[RegistryDataset], wanted: DatasetConfig
) -> RegistryDataset:
    # Of two entries with one name and version the later one counts, as in harbor.
    versions = {one.version: one for one in datasets if one.name == wanted.name}
    if not versions:
        known = sorted({one.name for one in datasets})
        raise TaskError(
            f"{where}: no dataset {wanted.name!r}; expected one of {', '.join(known) or 'none'}"
        )
    version = wanted.version or newest_version(versions)
    if version not in versions:
        raise TaskError(
            f"{where}: dataset {wanted.name!r} has no version {version!r}; "
            f"expected one of {', '.join(sorted(versions))}"
        )
    return versions[version]


def _parse(where: str, data: bytes) -> list[RegistryDataset]:
    try:
        return _REGISTRY.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
        )
        at = f" at {place.removeprefix('.')}" if place else ""
        raise TaskError(
            f"{where}: not a registry{at}: {first['msg']}; expected a JSON list of datasets, each "
            "with name, version, description and tasks"
        ) from error


def _read_file(path: Path) -> bytes:
    try:
        return read_small(str(path))
    except (OSError, ValueError) as error:
        raise TaskError(f"{path}: registry cannot be read: {reason_of(error)}") from error


def _fetch(url: str) -> bytes:
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https"):
        raise TaskError(
            f"{url}: a registry's address begins with https://; a file: --registry-path"
        )
    # Only http and https get here.
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            data: bytes = answer.read(_LARGEST + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise TaskError(f"{url}: the registry answered {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise TaskError(f"{url}: the registry cannot be reached: {reason}") from error
    if len(data) > _LARGEST:
        raise TaskError(f"{url}: the registry is larger than {_LARGEST >> 20} MiB")
    return data
