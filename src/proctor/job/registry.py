"""Datasets from a JSON registry: a file or a URL.

    [{"name", "version", "description", "tasks": [{"name", "git_url", "git_commit_id", "path"}],
      "metrics": [{"type", "kwargs"}]}]

A registry is untrusted: one from a server may name repositories on other machines, and nothing on
this one. Its last answer is kept, for when the server cannot be reached. proctor does not contact
harbor's own registry, which is not a file.
"""

import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from pydantic import TypeAdapter, ValidationError

from proctor.digest import sha256_hex
from proctor.errors import TaskError
from proctor.files import read_small, write_atomic
from proctor.harbor.configs import DatasetConfig, TaskConfig
from proctor.job.cache import Caches
from proctor.job.git_repository import check_git_url
from proctor.job.published import RegistryDataset, list_published
from proctor.sentence import reason_of, render_limit, without_number

# Choosing the newest version: head, else the highest by PEP 440, else the last by text


_VERSION = re.compile(
    r"""\s* v? (?:(?P<epoch>\d+)!)? (?P<release>\d+(?:\.\d+)*)
    (?:[-_.]?(?P<pre>alpha|beta|preview|pre|a|b|c|rc)[-_.]?(?P<pre_n>\d*))?
    (?:-(?P<post_bare>\d+)|(?P<post>[-_.]?(?:post|rev|r)[-_.]?(?P<post_n>\d*)))?
    (?P<dev>[-_.]?dev[-_.]?(?P<dev_n>\d*))?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))? \s*""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_LONGEST_VERSION = 1000
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
    # Python reads no numbers of thousands of digits.
    found = _VERSION.fullmatch(text) if len(text) <= _LONGEST_VERSION else None
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


PUBLISHED = "the datasets that proctor knows"
"""Name of the registry that is used if none is named."""
_REMEDY = (
    ". Others are in a registry: give --registry-url URL or --registry-path FILE.json, or set "
    "PROCTOR_REGISTRY; harbor's own is not contacted"
)
_SECONDS = 30
_MOST_SECONDS = 300
_LARGEST = 1 << 26
_PIECE = 1 << 16
_SERVER_ERROR = 500


_REGISTRY = TypeAdapter(list[RegistryDataset])


class Registry(msgspec.Struct, frozen=True):
    """The datasets of a registry."""

    where: str
    """Its path or URL."""
    datasets: Sequence[RegistryDataset]
    notes: tuple[str, ...] = ()
    """What a user should know, such as that a copy was used."""
    is_from_server: bool = False

    def find(self, name: str, version: str | None) -> RegistryDataset:
        """Find a dataset in the named version, or the newest."""
        found = _find(self, name, version)
        if self.is_from_server:
            _check_from_server(self.where, found)
        return found


def load_registry(path: Path | None, url: str | None, caches: Caches) -> Registry:
    """Load the registry in a file or on a server; without either, the one that proctor has."""
    if path is not None:
        return Registry(str(path), _parse(str(path), _read_file(path.expanduser())))
    if url is not None:
        data, notes = _fetch_or_recall(url, caches)
        return Registry(url, _parse(url, data), notes, is_from_server=True)
    return Registry(PUBLISHED, list_published())


def load_registry_dataset(
    wanted: DatasetConfig, caches: Caches
) -> tuple[RegistryDataset, tuple[str, ...]]:
    """Load the dataset that a job names, in the named version or the newest, with notes."""
    registry = load_registry(wanted.registry_path, wanted.registry_url, caches)
    return registry.find(wanted.name or "", wanted.version), registry.notes


def _check_from_server(url: str, dataset: RegistryDataset) -> None:
    """Check that a registry of strangers names nothing of this machine."""
    for task in dataset.tasks:
        if task.git_url is None:
            raise TaskError(
                f"{url}: task {task.name!r} of {dataset.name}@{dataset.version} has no git_url; a "
                "registry from a server may not name directories of this machine"
            )
        check_git_url(task.git_url, is_local_allowed=False)


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


def _find(registry: Registry, name: str, version: str | None) -> RegistryDataset:
    where = registry.where
    # Of two entries with the same name and version the later one wins, as in harbor.
    versions = {one.version: one for one in registry.datasets if one.name == name}
    remedy = _REMEDY if where == PUBLISHED else ""
    if not versions:
        known = sorted({one.name for one in registry.datasets})
        raise TaskError(
            f"{where}: no dataset {name!r}; expected one of {', '.join(known) or 'none'}{remedy}"
        )
    version = version or newest_version(versions)
    if version not in versions:
        raise TaskError(
            f"{where}: dataset {name!r} has no version {version!r}; "
            f"expected one of {', '.join(sorted(versions))}{remedy}"
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


def _fetch_or_recall(url: str, caches: Caches) -> tuple[bytes, tuple[str, ...]]:
    """The registry at a URL; if its server cannot be reached, the copy of the last time."""
    copy = caches.registries / f"{sha256_hex(os.fsencode(url))}.json"
    data = _fetch(url)
    if isinstance(data, str):
        try:
            kept = read_small(str(copy))
            at = datetime.fromtimestamp(copy.stat().st_mtime, UTC)
        except (OSError, ValueError):
            raise TaskError(data) from None
        return kept, (f"{data}; its copy of {at:%Y-%m-%d %H:%M} UTC is used",)
    _parse(url, data)
    # The copy is a convenience: without one, the registry is asked again.
    with suppress(OSError):
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(copy, data)
    return data, ()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only, and from https to https only."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after != "https" and (after, before) != ("http", "http"):
            fp.close()
            raise ValueError(f"it redirects from {before} to {after or newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(url: str) -> bytes | str:
    """The registry at a URL; or why its server does not answer; a later try may succeed."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise TaskError(f"{url}: not the address of a registry: {error}") from error
    if scheme not in ("http", "https"):
        raise TaskError(
            f"{url}: a registry's address begins with https://; a file: --registry-path"
        )
    try:
        # The scheme was checked above: only http and https.
        request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310
        with urllib.request.build_opener(_Redirects).open(request, timeout=_SECONDS) as answer:
            return _read_answer(url, answer)
    except urllib.error.HTTPError as error:
        error.close()
        said = f"{url}: the registry answered {error.code} {error.reason}"
        if error.code >= _SERVER_ERROR:
            return said
        raise TaskError(said) from error
    except (OSError, HTTPException, ValueError) as error:
        reason = without_number(str(getattr(error, "reason", None) or error))
        return f"{url}: the registry cannot be reached: {reason}"


def _read_answer(url: str, answer: HTTPResponse) -> bytes:
    until = time.monotonic() + _MOST_SECONDS
    data = bytearray()
    while piece := answer.read1(_PIECE):
        data += piece
        if len(data) > _LARGEST:
            raise TaskError(f"{url}: the registry is larger than {render_limit(_LARGEST)}")
        if time.monotonic() > until:
            raise TimeoutError(f"it took more than {_MOST_SECONDS} s")
    return bytes(data)
