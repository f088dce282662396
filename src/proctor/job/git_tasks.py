"""Fetch tasks of git repositories into harbor's cache, with the git command line.

Each commit of a repository is fetched once, for all its tasks: without history, and only the tasks'
own files if the server supports that. No code of the repository runs: no hooks, no submodules; git
never prompts for a password. Fetched commits are kept and not fetched again.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from proctor.errors import TaskError
from proctor.harbor.configs import TaskConfig
from proctor.job.cache import Caches, fill_once, git_task_id

_COMMIT = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]*")
_SECONDS = 1800
_PROTOCOLS = "file:git:http:https:ssh"
_OPTIONS = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "advice.detachedHead=false", "-c", "gc.auto=0"),
    *("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60"),
)


class GitTask(msgspec.Struct, frozen=True):
    """A fetched task, or the reason why there is none."""

    directory: Path | None
    commit: str
    """The full id of the commit."""
    why: str = ""
    """Why there is no directory."""
    notes: tuple[str, ...] = ()


type GitKey = tuple[str, str | None, str]


def git_key(task: TaskConfig) -> GitKey:
    """Key that identifies a task of a git repository."""
    return task.git_url or "", task.git_commit_id, str(task.path)


def fetch_git_tasks(
    wanted: Sequence[TaskConfig], caches: Caches, host: Mapping[str, str]
) -> dict[GitKey, GitTask]:
    """Return every wanted task, from the cache or from its repository.

    Raises:
        TaskError: git is not installed, a repository cannot be reached, or it lacks the commit.
    """
    found: dict[GitKey, GitTask] = {}
    missing: dict[tuple[str, str | None], dict[GitKey, TaskConfig]] = defaultdict(dict)
    for task in wanted:
        _check(task)
        cached = _find_cached(task, caches)
        if cached is not None:
            found[git_key(task)] = GitTask(cached, task.git_commit_id or "")
        else:
            missing[task.git_url or "", task.git_commit_id][git_key(task)] = task
    for (url, commit), tasks in missing.items():
        found |= _fetch(url, commit, tasks, caches, host)
    return found


def _check(task: TaskConfig) -> None:
    path = PurePosixPath(str(task.path))
    if path.is_absolute() or ".." in path.parts:
        raise TaskError(f"{task.git_url}: path {str(path)!r}; expected one inside the repository")
    # git would take it for an option.
    if (task.git_url or "").startswith("-"):
        raise TaskError(f"{task.git_url!r} is not the URL of a git repository")
    if task.git_commit_id is not None and not _REF.fullmatch(task.git_commit_id):
        raise TaskError(
            f"{task.git_url}: {task.git_commit_id!r} is not a commit; expected an id, a tag or a "
            "branch"
        )


def _place(task: TaskConfig, commit: str | None, caches: Caches) -> Path:
    base = task.download_dir.expanduser() if task.download_dir else caches.tasks
    path = task.path or Path()
    name = path.name or (task.git_url or "").rstrip("/").rpartition("/")[2].removesuffix(".git")
    return base / git_task_id(task.git_url or "", commit, path) / name


def _find_cached(task: TaskConfig, caches: Caches) -> Path | None:
    """The cached task of a commit given by its full id; a branch may have moved on."""
    commit = task.git_commit_id
    if task.overwrite or commit is None or not _COMMIT.fullmatch(commit):
        return None
    place = _place(task, commit, caches)
    # An empty directory does not count: it may be the rest of a failed download.
    return place if place.is_dir() and any(place.iterdir()) else None


def _fetch(
    url: str,
    commit: str | None,
    tasks: Mapping[GitKey, TaskConfig],
    caches: Caches,
    host: Mapping[str, str],
) -> dict[GitKey, GitTask]:
    with tempfile.TemporaryDirectory(prefix="proctor-git-") as scratch:
        repository = _Repository(url, Path(scratch), _git_env(host))
        resolved = repository.fetch(commit)
        paths = {key: task.path or Path() for key, task in tasks.items()}
        present = [path for path in paths.values() if repository.has_directory(resolved, path)]
        repository.check_out(resolved, present)
        notes = repository.find_notes(resolved, present)
        return {
            key: _keep(repository, task, resolved, caches, notes)
            if paths[key] in present
            else GitTask(None, resolved, f"{url} has no directory {paths[key]} at {resolved}")
            for key, task in tasks.items()
        }


def _keep(
    repository: "_Repository",
    task: TaskConfig,
    resolved: str,
    caches: Caches,
    notes: tuple[str, ...],
) -> GitTask:
    source = repository.directory / (task.path or Path())
    if stray := _find_stray_link(source):
        return GitTask(None, resolved, f"{stray} is a link to nothing that is there for a task")
    # A commit named by its full id has harbor's own cache entry; a branch uses that of its commit.
    named = task.git_commit_id or ""
    place = _place(task, named if _COMMIT.fullmatch(named) else resolved, caches)
    if task.overwrite and place.exists():
        shutil.rmtree(place)
    fill_once(place, lambda made: _copy(source, made))
    return GitTask(place, resolved, notes=notes)


def _copy(source: Path, target: Path) -> None:
    # Links are replaced by their targets, as in harbor's copies, whose digest is compared.
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".git"))


def _find_stray_link(directory: Path) -> str | None:
    """Find a link that leads out of a task: it could lead to any file of this machine."""
    root = Path(os.path.realpath(directory))
    for parent, directories, files in os.walk(directory):
        for name in [*directories, *files]:
            path = Path(parent, name)
            if path.is_symlink():
                target = Path(os.path.realpath(path))
                if not target.exists() or root not in target.parents:
                    return str(path.relative_to(directory))
    return None


def _git_env(host: Mapping[str, str]) -> dict[str, str]:
    # GIT_DIR and the like would redirect our commands to another repository.
    env = {name: value for name, value in host.items() if not name.startswith("GIT_")}
    return env | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_SSH_COMMAND": host.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }


class _Repository(msgspec.Struct, frozen=True):
    """A repository of which one commit is fetched."""

    url: str
    directory: Path
    env: Mapping[str, str]

    def fetch(self, commit: str | None) -> str:
        """Fetch one commit and return its full id."""
        self._run("init", "--quiet")
        self._run("remote", "add", "--", "origin", self.url)
        # Neither history nor file contents: the checkout fetches the few blobs it needs.
        shallow = self._try("fetch", "--depth=1", "--filter=blob:none", "origin", commit or "HEAD")
        if shallow.returncode == 0:
            return self._run("rev-parse", "FETCH_HEAD^{commit}")
        if commit is None:
            raise self._unreachable(shallow)
        # Some servers only serve a commit through its branch, and none resolves an abbreviated id.
        whole = self._try("fetch", "--filter=blob:none", "--tags", "origin", "+refs/*:refs/all/*")
        if whole.returncode != 0:
            raise self._unreachable(whole)
        found = self._try("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
        if found.returncode != 0:
            raise TaskError(
                f"{self.url}: has no commit {commit!r}; expected the id of one, a tag or a branch"
            )
        return found.stdout.decode().strip()

    def has_directory(self, commit: str, path: Path) -> bool:
        """Whether the commit has a directory there."""
        inside = "" if path == Path() else path.as_posix()
        found = self._try("cat-file", "-t", f"{commit}:{inside}")
        return found.returncode == 0 and found.stdout.strip() == b"tree"

    def check_out(self, commit: str, paths: Sequence[Path]) -> None:
        """Check out the files of these directories."""
        if not paths:
            return
        # Read the whole index first: .gitattributes at the top of the repository apply to its
        # tasks.
        self._run("read-tree", commit)
        listed = b"\0".join(path.as_posix().encode() for path in paths)
        self._run("checkout", "--pathspec-from-file=-", "--pathspec-file-nul", given=listed)

    def find_notes(self, commit: str, paths: Sequence[Path]) -> tuple[str, ...]:
        """Fetch files stored in git-lfs; return notes about those that could not be."""
        attributes = self._try("cat-file", "-p", f"{commit}:.gitattributes")
        if b"filter=lfs" not in attributes.stdout or not paths:
            return ()
        if shutil.which("git-lfs", path=self.env.get("PATH")) is None:
            return (
                f"{self.url} keeps large files with git-lfs, which is not installed: "
                "its tasks have pointers in their place",
            )
        include = ",".join("**" if path == Path() else f"{path.as_posix()}/**" for path in paths)
        self._run("lfs", "pull", f"--include={include}")
        return ()

    def _unreachable(self, failed: subprocess.CompletedProcess[bytes]) -> TaskError:
        return TaskError(f"{self.url}: cannot be fetched: {_complaint(failed)}")

    def _run(self, *arguments: str, given: bytes = b"") -> str:
        done = self._try(*arguments, given=given)
        if done.returncode != 0:
            raise TaskError(f"{self.url}: git {arguments[0]} failed: {_complaint(done)}")
        return done.stdout.decode(errors="replace").strip()

    def _try(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                ["git", *_OPTIONS, *arguments],
                cwd=self.directory,
                env=self.env,
                input=given,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except FileNotFoundError as error:
            raise TaskError(
                f"{self.url}: git is not installed; tasks of a git repository need it"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise TaskError(f"{self.url}: git took more than {_SECONDS} s") from error


def _complaint(failed: subprocess.CompletedProcess[bytes]) -> str:
    lines = failed.stderr.decode(errors="replace").strip().splitlines()
    wanted = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))]
    return "; ".join(wanted[-2:] or lines[-1:]) or f"exit code {failed.returncode}"
