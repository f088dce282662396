"""Published datasets that proctor knows: where their tasks are, and the digests of them.

The digests are those of the bundled policy of a dataset, so that what is fetched is what its
leaderboard asks for. Tasks with other contents are refused.
"""

import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
from pydantic import BaseModel

from proctor.digest import sha256_hex
from proctor.errors import TaskError
from proctor.harbor.configs import MetricConfig

# Data of a package above this one: one list of digests for what is fetched and what is checked.
_POLICIES = Path(__file__).parent.parent / "report" / "policy" / "bundled"


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

    @property
    def dataset_id(self) -> str:
        """name@version."""
        return f"{self.name}@{self.version}"


class _Published(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset in a git repository, with a policy that has the digests of its tasks."""

    name: str
    version: str
    description: str
    git_url: str
    git_commit_id: str
    directory: str
    """Directory of the tasks in the repository."""
    policy: str

    def load_digests(self) -> Mapping[str, str]:
        """The digest of each task, as in lock.json, by the name of its directory."""
        policy = tomllib.loads((_POLICIES / f"{self.policy}.toml").read_text(encoding="utf-8"))
        digests: Mapping[str, str] = policy["tasks"]["digests"]
        return {name.rpartition("/")[2]: digest for name, digest in sorted(digests.items())}


_DATASETS = (
    _Published(
        name="terminal-bench",
        version="2.1",
        description="Terminal-Bench 2.1: 89 tasks in a terminal",
        git_url="https://github.com/harbor-framework/terminal-bench-2-1.git",
        git_commit_id="7131e4375048a0e408a8fb404b5f499d726b695b",
        directory="tasks",
        policy="terminal-bench-2-1",
    ),
)


def list_published() -> list[RegistryDataset]:
    """The published datasets, as a registry would list them."""
    return [
        RegistryDataset(
            name=one.name,
            version=one.version,
            description=one.description,
            tasks=[
                RegistryTask(
                    name=name,
                    git_url=one.git_url,
                    git_commit_id=one.git_commit_id,
                    path=Path(one.directory, name),
                )
                for name in one.load_digests()
            ],
        )
        for one in _DATASETS
    ]


@lru_cache
def find_digests(dataset_id: str | None) -> Mapping[str, str] | None:
    """The digests of a published dataset's tasks, by directory; None if it is not one."""
    for one in _DATASETS:
        if dataset_id == f"{one.name}@{one.version}":
            return one.load_digests()
    return None


def check_published(dataset_id: str | None, name: str, digest: str) -> None:
    """Check that a task is the one of the published dataset that it is said to be from.

    Raises:
        TaskError: it is another.
    """
    digests = find_digests(dataset_id)
    if digests is None or digests.get(name) == digest:
        return
    if name not in digests:
        raise TaskError(
            f"{dataset_id} has no such task: it was published with {len(digests)} others"
        )
    raise TaskError(
        f"its digest is {digest}; the task that was published with {dataset_id} has {digests[name]}"
    )


VARIABLE = "PROCTOR_REGISTRY"
"""Variable that names the registry to use if a command names none: a path or a URL."""


def split_registry(host: Mapping[str, str]) -> tuple[Path | None, str | None]:
    """The path or the URL of the registry that the host's variable names."""
    named = host.get(VARIABLE, "")
    # Not parsed: an address that is wrong is refused where it is used.
    if named.lower().startswith(("http:", "https:")):
        return None, named
    return (Path(named) if named else None), None


def digest_dataset(digests: Iterable[str]) -> str:
    """The digest of a dataset from those of its tasks, as harbor's packages have it."""
    bare = sorted(digest.removeprefix("sha256:") for digest in digests)
    return f"sha256:{sha256_hex(','.join(bare).encode())}"
