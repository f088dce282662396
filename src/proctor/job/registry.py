"""Datasets from a JSON registry: a file or a URL.

    [{"name", "version", "description", "tasks": [{"name", "git_url", "git_commit_id", "path"}],
      "metrics": [{"type", "kwargs"}]}]

proctor does not contact harbor's own registry, which is not a file.
"""

import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter, ValidationError

from proctor.errors import TaskError
from proctor.files import read_small
from proctor.harbor.configs import DatasetConfig, MetricConfig, TaskConfig
from proctor.sentence import reason_of

# Choosing the newest version: head, else the highest by PEP 440, else the last by text


_VERSION = re.compile(
    r"""\s* v? (?:(?P<epoch>\d+)!)? (?P<release>\d+(?:\.\d+)*)
    (?:[-_.]?(?P<pre>alpha|beta|preview|pre|a|b|c|rc)[-_.]?(?P<pre_n>\d*))?
    (?:-(?P<post_bare>\d+)|(?P<post>[-_.]?(?:post|rev|r)[-_.]?(?P<post_n>\d*)))?
    (?P<dev>[-_.]?dev[-_.]?(?P<dev_n>\d*))?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))? \s*""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}

type VersionKey = tuple[int, tuple[int, ...], tuple[int, int], int, float, tuple[object, ...]]


def newest_version(versions: Iterable[str]) -> str:
    """Return the version to use if none is named.

    Raises:
        ValueError: there are no versions.
    """
    named = list(versions)
    if not named:
        raise ValueError("no versions")
    if "head" in named:
        return "head"
    ranked = [(key, name) for name in named if (key := parse_version(name)) is not None]
    if not ranked:
        return max(named)
    return max(ranked, key=lambda pair: pair[0])[1]


def parse_version(text: str) -> VersionKey | None:
    """Return a key that sorts as PEP 440 does; None if the text is not a version."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    release = tuple(int(part) for part in found["release"].split("."))
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    post = found["post_bare"] or found["post_n"] or (0 if found["post"] else None)
    dev = float(found["dev_n"] or 0) if found["dev"] else float("inf")
    return (
        int(found["epoch"] or 0),
        release,
        _stage(found, is_dev_alone=post is None and bool(found["dev"])),
        -1 if post is None else int(post),
        dev,
        _local(found["local"]),
    )


def _stage(found: re.Match[str], *, is_dev_alone: bool) -> tuple[int, int]:
    """Sort key: alpha, beta, candidate, release; a bare .dev comes before them all."""
    if found["pre"]:
        return _STAGES[found["pre"].lower()], int(found["pre_n"] or 0)
    return (-1, 0) if is_dev_alone else (len(_STAGES), 0)


def _local(text: str | None) -> tuple[object, ...]:
    """Sort key: None first; text parts before numbers."""
    parts = re.split(r"[-_.]", text.lower()) if text else []
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)


_SECONDS = 30
_LARGEST = 1 << 28


class RegistryTask(BaseModel, defer_build=True):
    """A task in a registry."""

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
    """Load the dataset that a job names, in the named version or the newest.

    Raises:
        TaskError: no registry is named, it cannot be read, or it lacks the dataset.
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
    """The tasks of a dataset, in its order, as config entries."""
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
    # Of two entries with the same name and version the later one wins, as in harbor.
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
    # The scheme was checked above: only http and https.
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            # One byte more than allowed tells a longer answer from one of exactly this size.
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
