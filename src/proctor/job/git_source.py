"""Datasets in git repositories: `git+URL[@REF][#subdirectory=PATH]`, a directory of tasks.

The form is the one that Python's installers use. The ref is resolved to a commit at once, and the
tasks are listed with it, so that a branch that moves on does not change a job.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from proctor.errors import TaskError
from proctor.job.cache import Caches
from proctor.job.fetching import Fetching
from proctor.job.git_repository import (
    Repository,
    check_git_path,
    check_git_ref,
    check_git_url,
    hide_password,
)
from proctor.job.git_tasks import scratch
from proctor.job.published import RegistryDataset, RegistryTask
from proctor.record.ids import make_id

PREFIX = "git+"
_FRAGMENT = "subdirectory="
_TASK = "task.toml"
_SHOWN = 12
_MOST_NAMED = 5


class GitSource(msgspec.Struct, frozen=True):
    """A directory of tasks in a git repository."""

    url: str
    ref: str | None
    path: Path

    @property
    def name(self) -> str:
        """The name of the dataset: that of the repository."""
        return make_id(self.url.rstrip("/").replace(":", "/").rpartition("/")[2]).removesuffix(
            ".git"
        )


def parse_git_source(text: str) -> GitSource:
    """Parse `git+URL[@REF][#subdirectory=PATH]`.

    Raises:
        TaskError: it is not one.
    """
    place, hash_, fragment = text.removeprefix(PREFIX).partition("#")
    url, ref = _split_ref(place)
    is_whole = url and (not hash_ or fragment.removeprefix(_FRAGMENT) not in ("", fragment))
    if not text.startswith(PREFIX) or not is_whole:
        raise TaskError(
            f"{hide_password(text)!r} is not a dataset in git; expected "
            "git+https://HOST/REPOSITORY.git, with @COMMIT and #subdirectory=PATH if needed"
        )
    source = GitSource(url, ref, Path(fragment.removeprefix(_FRAGMENT) or "."))
    check_git_url(source.url)
    check_git_ref(source.url, source.ref)
    check_git_path(source.url, source.path)
    return source


def _split_ref(place: str) -> tuple[str, str | None]:
    """Split off the ref; an @ before the last name is that of a user."""
    if ".git@" in place:
        url, _, ref = place.rpartition(".git@")
        return f"{url}.git", ref
    head, slash, last = place.rpartition("/")
    name, at, ref = last.partition("@")
    return (f"{head}{slash}{name}", ref) if slash and at else (place, None)


def list_git_dataset(
    source: GitSource, caches: Caches, host: Mapping[str, str], fetching: Fetching
) -> RegistryDataset:
    """List the tasks of a dataset in a repository, at the commit that its ref names now.

    Raises:
        TaskError: the repository cannot be reached, or has no tasks there.
    """
    with scratch(caches) as directory:
        repository = Repository(source.url, directory, host, fetching)
        commit = repository.fetch(source.ref)
        if not repository.find_directories(commit, [source.path]):
            raise TaskError(f"{repository.shown} has no directory {source.path} at {commit}")
        files = [Path(name) for name in repository.list_files(commit, source.path)]
    homes = sorted(file.parent for file in files if file.name == _TASK)
    places = [home for home in homes if source.path in (home.parent, home)]
    if not places:
        raise TaskError(_describe_none(source, commit, homes))
    return RegistryDataset(
        name=source.name,
        version=commit,
        description=f"{hide_password(source.url)} at {commit[:_SHOWN]}",
        tasks=[
            RegistryTask(
                name=home.name or source.name,
                git_url=source.url,
                git_commit_id=commit,
                path=home,
            )
            for home in places
        ],
    )


def _describe_none(source: GitSource, commit: str, homes: list[Path]) -> str:
    where = f"{hide_password(source.url)}: no tasks in {source.path} at {commit[:_SHOWN]}"
    parents = list(dict.fromkeys(str(home.parent) for home in homes))
    if not parents:
        return f"{where}; expected directories with a {_TASK}"
    named = ", ".join(parents[:_MOST_NAMED])
    return f"{where}, but in {named}; add #subdirectory={parents[0]}"
