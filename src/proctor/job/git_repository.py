"""A git repository of strangers, of which one commit is fetched with the git command line.

Only what is needed is fetched: no history, and no other files if the server supports that. No code
of the repository runs: no hooks, no filters of its own, no submodules; only transports that run no
commands; git never prompts for a password. A repository that is too large is given up while it is
fetched, and git ends when the fetch is stopped.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from proctor.errors import TaskError
from proctor.files import find_room
from proctor.job.fetching import Fetching
from proctor.sentence import count_of, printable, render_size

COMMIT = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
"""The full id of a commit."""
_LONG_ID = 64
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]*")
_SECONDS = 3600
_POLL_SECONDS = 0.1
_MEASURE_SECONDS = 0.5
_LARGEST_ANSWER = 1 << 28
# Files of a commit, fetched or not. A few kilobytes of trees can name billions, because a tree may
# contain another many times; git needs memory for each of them.
_MOST_IN_COMMIT = 2_000_000
# Bytes at the end of git's messages that have its last progress.
_LAST_SAID = 4096
# Paths that are listed one by one; of more, the whole tree is listed.
_MOST_PATHS = 500
_PROTOCOLS = "file:git:http:https:ssh"
_SCHEME = re.compile(r"(https?|ssh|git|file)://(?!-)(?:[^/@]*@(?!-))?[^\s]+")
_SCP = re.compile(r"(?!-)(?:[A-Za-z0-9_.-]+@)?(?!-)[A-Za-z0-9_.-]+:(?!:)[^\s]*")
# Over HTTP a user is often a token; over ssh, `git@` is a mere name.
_SECRET = re.compile(r"(https?://)[^/]*@|(://[^/@:]*:)[^/]*@", re.IGNORECASE)
_SUBMODULE = "160000"
_OPTIONS = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "advice.detachedHead=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
    *("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60"),
    *("-c", "submodule.recurse=false", "-c", "fetch.recurseSubmodules=false"),
)
_PROGRESS = re.compile(
    r"(Receiving objects|Resolving deltas|Updating files): +(\d+)%[^,\r\n]*([^\r\n]*)"
)


def check_git_url(url: str, *, is_local_allowed: bool = True) -> None:
    """Check that a URL is one of a git repository, and that git would run no command for it.

    Raises:
        TaskError: it is not; or it has a password or a token, or is on this machine, which is not
            allowed.
    """
    shown = printable(hide_password(url))
    if _SECRET.search(url):
        raise TaskError(
            f"{shown!r} has a user, password or token in it, which would be recorded with every "
            "trial; remove it and let git find it: see `git help credentials`"
        )
    if not url.isprintable() or url.startswith("-") or "::" in url.partition("/")[0]:
        raise TaskError(f"{shown!r} is not the URL of a git repository; expected https://…")
    found = _SCHEME.fullmatch(url)
    is_local = found[1] == "file" if found else _SCP.fullmatch(url) is None
    if not found and "://" in url:
        raise TaskError(f"{shown!r}: expected a git repository at https, http, ssh, git or file")
    if is_local and not is_local_allowed:
        raise TaskError(
            f"{shown!r} is a repository on this machine; a registry from a server may not name "
            "one: save the registry as a file and use --registry-path"
        )


def hide_password(url: str) -> str:
    """A URL without the password or token that may be in it."""
    return _SECRET.sub(r"\1\2…@", url)


def check_git_ref(url: str, ref: str | None) -> None:
    """Check that a ref is one, and not an option of git.

    Raises:
        TaskError: it is not.
    """
    if ref is not None and (not _REF.fullmatch(ref) or ".." in ref):
        raise TaskError(f"{url}: {ref!r} is not a commit; expected an id, a tag or a branch")


def check_git_path(url: str, path: Path) -> None:
    """Check that a path is inside of a repository.

    Raises:
        TaskError: it is not.
    """
    place = PurePosixPath(str(path))
    if place.is_absolute() or ".." in place.parts or not str(place).isprintable():
        raise TaskError(f"{url}: path {str(place)!r}; expected one inside the repository")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of which one commit is fetched into a directory."""

    url: str
    directory: Path
    host: Mapping[str, str]
    fetching: Fetching

    @property
    def shown(self) -> str:
        """Its URL in messages."""
        return hide_password(self.url)

    @property
    def _attributes(self) -> Path:
        """Attributes that take precedence over those of the repository."""
        return self.directory / ".git" / "info" / "attributes"

    def fetch(self, commit: str | None) -> str:
        """Fetch one commit and return its full id.

        Raises:
            TaskError: it cannot be reached, has no such commit, or is too large.
        """
        is_id = commit is not None and COMMIT.fullmatch(commit) is not None
        # With the other format, git would take the id for the name of a branch.
        kind = "sha256" if is_id and len(commit or "") == _LONG_ID else "sha1"
        self._run("init", "--quiet", "--template=", f"--object-format={kind}")
        self._run("remote", "add", "--", "origin", self.url)
        fetch = ("fetch", "--progress", "--no-tags", "--filter=blob:none")
        # Neither history nor file contents: the checkout fetches the few blobs it needs.
        shallow = self._try(*fetch, "--depth=1", "origin", commit or "HEAD")
        if shallow.code == 0:
            return self._run("rev-parse", "FETCH_HEAD^{commit}")
        if commit is None:
            raise self._unreachable(shallow)
        # Some servers only serve a commit through its branch, and none resolves an abbreviated id.
        whole = self._try(*fetch, "origin", "+refs/*:refs/all/*", "+refs/tags/*:refs/tags/*")
        if whole.code != 0:
            raise self._unreachable(whole)
        # A branch may be named like the id of a commit, and be another one.
        for name in (commit,) if is_id else (commit, f"refs/all/heads/{commit}"):
            found = self._try("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
            if found.code == 0:
                return found.out.decode().strip()
        raise TaskError(
            f"{self.shown}: has no commit {commit!r}; expected the id of one, a tag or a branch"
        )

    def list_files(self, commit: str, path: Path) -> list[str]:
        """The files below a directory of a commit, relative to the repository."""
        return [name for _, name in self._list_tree(commit, [path])]

    def find_submodules(self, commit: str, paths: Sequence[Path]) -> list[str]:
        """Submodules below directories of a commit, whose files are in another repository."""
        listed = self._list_tree(commit, paths)
        return [name for mode, name in listed if mode == _SUBMODULE]

    def _list_tree(self, commit: str, paths: Sequence[Path]) -> list[tuple[str, str]]:
        inside = {_name_inside(path) for path in paths}
        chosen = inside if "" not in inside and len(inside) <= _MOST_PATHS else ()
        words = ("ls-tree", "-r", "-z", "--full-tree", commit, "--", *sorted(chosen))
        listed = [entry.partition("\t") for entry in self._run(*words).split("\0") if entry]
        entries = [
            (head.partition(" ")[0], name)
            for head, _, name in listed
            if chosen or "" in inside or not inside.isdisjoint(map(str, Path(name).parents))
        ]
        if len(entries) > self.fetching.most_files:
            raise TaskError(
                f"{self.shown}: {count_of(len(entries), 'file')} to fetch; expected at most "
                f"{self.fetching.most_files:,}"
            )
        return entries

    def find_directories(self, commit: str, paths: Sequence[Path]) -> list[Path]:
        """Those of the paths that are directories of the commit."""
        names = [f"{commit}:{_name_inside(path)}\n" for path in paths]
        said = self._run("cat-file", "--batch-check=%(objecttype)", given="".join(names).encode())
        kinds = said.split("\n")
        return [path for path, kind in zip(paths, kinds, strict=False) if kind == "tree"]

    def check_out(self, commit: str, paths: Sequence[Path]) -> None:
        """Check out the files of these directories."""
        if not paths:
            return
        self._check_tree(commit)
        # Read the whole index first: .gitattributes at the top of the repository apply to its
        # tasks.
        self._run("read-tree", commit)
        # A program that the user configured as a filter is run for no repository of strangers.
        self._attributes.parent.mkdir(exist_ok=True)
        self._attributes.write_text("* -filter\n", encoding="ascii")
        listed = b"\0".join(path.as_posix().encode() for path in paths)
        words = ("checkout", "--progress", "--pathspec-from-file=-", "--pathspec-file-nul")
        self._run(*words, given=listed)
        self._check_size()

    def _check_tree(self, commit: str) -> None:
        """Check that a commit has not too many files, and each of its names only once.

        Of a directory and a link of one name, git writes the link, and git-lfs before 3.7.1 writes
        the files of the directory to where the link leads.
        """
        files = self._list_names(commit, "file", "files")
        # Trees can be empty, and a malformed one can have names with a slash: both are looked at.
        entries = self._list_names(commit, "entry", "entries", "-t")
        if twice := _find_twice(files, entries):
            raise TaskError(
                f"{self.shown}: {printable(os.fsdecode(twice))!r} is more than one file or "
                "directory of the commit, which is malformed; refused"
            )

    def _list_names(self, commit: str, one: str, many: str, *options: str) -> list[bytes]:
        words = ("ls-tree", "-r", *options, "-z", "--name-only", "--full-tree", commit)
        listed = self._call(*words).out
        if (number := listed.count(b"\0")) > _MOST_IN_COMMIT:
            raise TaskError(
                f"{self.shown}: {count_of(number, one, many)} in the commit; expected at most "
                f"{_MOST_IN_COMMIT:,}"
            )
        return listed.split(b"\0")[:-1]

    def find_notes(self, commit: str, paths: Sequence[Path]) -> tuple[str, ...]:
        """Fetch files stored in git-lfs; return notes about those that could not be."""
        attributes = self._try("cat-file", "-p", f"{commit}:.gitattributes")
        if b"filter=lfs" not in attributes.out or not paths:
            return ()
        if shutil.which("git-lfs", path=self.host.get("PATH")) is None:
            return (
                f"{self.shown} keeps large files with git-lfs, which is not installed: "
                "its tasks have pointers in their place",
            )
        # git-lfs replaces only files that have its filter.
        self._attributes.unlink(missing_ok=True)
        include = ",".join("**" if path == Path() else f"{path.as_posix()}/**" for path in paths)
        # It looks at the files of HEAD, and replaces none where its filter is not configured.
        self._run("update-ref", "--no-deref", "HEAD", commit)
        self._run("lfs", "install", "--local", "--skip-repo")
        self._run("lfs", "pull", f"--include={include}")
        self._check_size()
        return ()

    def _unreachable(self, failed: "_Done") -> TaskError:
        return TaskError(
            f"{self.shown}: cannot be fetched: {failed.complaint}; tasks that are on this machine "
            "already run with `-p DIRECTORY`"
        )

    def _run(self, *arguments: str, given: bytes = b"") -> str:
        return self._call(*arguments, given=given).out.decode(errors="replace").strip()

    def _call(self, *arguments: str, given: bytes = b"") -> "_Done":
        done = self._try(*arguments, given=given)
        if done.code != 0:
            raise TaskError(f"{self.shown}: git {arguments[0]} failed: {done.complaint}")
        return done

    def _try(self, *arguments: str, given: bytes = b"") -> "_Done":
        # Files instead of pipes: git never waits for us, and we can look at its progress.
        with (
            tempfile.TemporaryFile(dir=self.directory) as stdin,
            tempfile.TemporaryFile(dir=self.directory) as stdout,
            tempfile.TemporaryFile(dir=self.directory) as stderr,
        ):
            stdin.write(given)
            stdin.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", *_OPTIONS, *arguments],
                    cwd=self.directory,
                    env=_make_env(self.host),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    # It has children, which must end with it.
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise TaskError(
                    f"{self.shown}: git is not installed; tasks of a git repository need it"
                ) from error
            with _ended(process):
                self._wait(process, stdout, stderr)
            self._check_answer(stdout, stderr)
            return _Done(process.returncode, _read(stdout), _read(stderr))

    def _wait(self, process: subprocess.Popen[bytes], stdout: IO[bytes], stderr: IO[bytes]) -> None:
        began = measured = time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)
                return
            self._check_answer(stdout, stderr)
            now = time.monotonic()
            if self.fetching.stop.is_set():
                raise TaskError(f"{self.shown}: the fetch was stopped")
            if now - began > _SECONDS:
                raise TaskError(f"{self.shown}: git took more than {_SECONDS} s")
            if now - measured > _MEASURE_SECONDS:
                measured = now
                self._check_size()
                self._report(stderr)

    def _check_answer(self, *files: IO[bytes]) -> None:
        """Check what git prints, which is in files without a name that `measure` does not see."""
        if any(os.fstat(file.fileno()).st_size > _LARGEST_ANSWER for file in files):
            raise TaskError(
                f"{self.shown}: git prints more than {render_size(_LARGEST_ANSWER)}; the "
                "repository names too many files, or its server sends too many messages"
            )

    def _check_size(self) -> None:
        most = self.fetching.most_bytes
        most = find_room(str(self.directory)) if most is None else most
        if (size := measure(self.directory)) > most:
            raise TaskError(
                f"{self.shown}: larger than {render_size(most)} ({render_size(size)} so far), "
                "which is all that may be fetched"
            )

    def _report(self, stderr: IO[bytes]) -> None:
        said = _read(stderr, last=_LAST_SAID).decode(errors="replace")
        if found := list(_PROGRESS.finditer(said)):
            phase, percent, rest = found[-1].groups()
            more = printable(rest.strip(" ,."))
            text = f"{self.shown}: {phase.lower()} {percent}%"
            self.fetching.report(f"{text}, {more}" if more else text, True)  # noqa: FBT003


@dataclass(frozen=True, slots=True)
class _Done:
    """A git command that has ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def complaint(self) -> str:
        """What it says about its failure."""
        lines = self.err.decode(errors="replace").strip().splitlines()
        wanted = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))]
        said = "; ".join(line.strip() for line in wanted[-2:] or lines[-1:])
        return printable(said) or f"exit code {self.code}"


def _find_twice(files: Sequence[bytes], entries: Sequence[bytes]) -> bytes | None:
    """Find a name that two entries have, or that a file and a directory above another have."""
    above: set[bytes] = set()
    for name in files:
        parent = name.rpartition(b"/")[0]
        while parent and parent not in above:
            above.add(parent)
            parent = parent.rpartition(b"/")[0]
    seen: set[bytes] = set()
    for name in entries:
        if name in seen:
            return name
        seen.add(name)
    return next((name for name in files if name in above), None)


def _name_inside(path: Path) -> str:
    """A path as git names it; empty for the whole repository."""
    return "" if path == Path() else path.as_posix()


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End git and its children with the block, if they run longer."""
    try:
        yield
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _read(file: IO[bytes], last: int | None = None) -> bytes:
    size = os.fstat(file.fileno()).st_size
    # git writes at the position that it shares with us: pread does not move it.
    start = 0 if last is None else max(size - last, 0)
    return os.pread(file.fileno(), min(size - start, _LARGEST_ANSWER), start)


def measure(directory: Path) -> int:
    """Bytes of the files below a directory that is being written."""
    total = 0
    for place, _, names in directory.walk(on_error=None):
        for name in names:
            with contextlib.suppress(OSError):
                total += (place / name).lstat().st_size
    return total


def _make_env(host: Mapping[str, str]) -> dict[str, str]:
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
