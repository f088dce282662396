"""Where sandboxes write: places, runs that live or died, evidence that is brought to safety."""

import fcntl
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.environments.sandbox import reap
from proctor.environments.sandbox.delete import delete_tree
from proctor.environments.sandbox.reap import reap_dead_runs
from proctor.environments.sandbox.salvage import salvage
from proctor.environments.sandbox.scratch import (
    RunId,
    Session,
    can_hold_upper,
    find_place,
    make_private,
    open_run,
    parse_run_id,
    scratch_roots,
    this_run,
)
from proctor.errors import SandboxError
from proctor.filesystems import file_system_of, list_mounts
from tests.environments.sandbox.rootfs import open_directory
from tests.unprivileged import unprivileged

HERE = Path(__file__).resolve().parent


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scratch of this test's own."""
    monkeypatch.setenv("PROCTOR_SCRATCH", str(tmp_path / "scratch"))
    return tmp_path


# Places


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"PROCTOR_SCRATCH": "/s", "PROCTOR_CACHE": "/c"}, "/s"),
        ({"PROCTOR_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "/c/scratch"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/proctor/scratch"),
        ({"XDG_CACHE_HOME": "not/absolute", "HOME": "/h"}, "/h/.cache/proctor/scratch"),
    ],
)
def test_the_place_is_named_by_the_first_variable_that_is_set(
    environ: Mapping[str, str], root: str
) -> None:
    assert scratch_roots(environ)[0] == Path(root)


def test_a_place_is_made_for_its_user_alone(place: Path) -> None:
    found = find_place()
    assert (found.root, found.note) == (place / "scratch", None)
    assert found.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["overlay", "nfs4", "9p", "fuse.sshfs", "vfat"])
def test_some_file_systems_cannot_hold_what_sandboxes_write(kind: str) -> None:
    assert not can_hold_upper(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs"])
def test_others_can(kind: str) -> None:
    assert can_hold_upper(kind)


@contextmanager
def unfit(kind: str, monkeypatch: pytest.MonkeyPatch, *, in_memory: str) -> Iterator[None]:
    """A machine whose disk is of a kind that cannot hold an overlay."""

    def look(path: Path) -> str:
        return in_memory if str(path).startswith("/dev/shm") else kind

    with monkeypatch.context() as patch:
        patch.setattr("proctor.environments.sandbox.scratch.file_system_of", look)
        yield


@pytest.mark.sandbox
def test_where_the_disk_cannot_the_memory_can_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unfit("overlay", monkeypatch, in_memory="tmpfs"):
        found = find_place({"PROCTOR_CACHE": str(tmp_path)})
    try:
        assert found.root == Path(f"/dev/shm/proctor-{os.geteuid()}")
        assert "scratch is on overlay, which cannot hold" in (found.note or "")
        assert "PROCTOR_SCRATCH" in (found.note or "")
    finally:
        found.root.rmdir()


def test_where_neither_can_it_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        unfit("overlay", monkeypatch, in_memory="overlay"),
        pytest.raises(SandboxError, match="set PROCTOR_SCRATCH to a directory on ext4"),
    ):
        find_place({"PROCTOR_CACHE": str(tmp_path)})


@pytest.mark.sandbox
def test_a_place_that_was_named_is_not_silently_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        unfit("nfs4", monkeypatch, in_memory="tmpfs"),
        pytest.raises(SandboxError, match="is on nfs4"),
    ):
        find_place({"PROCTOR_SCRATCH": str(tmp_path)})


def test_a_place_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match="file/x: cannot be created for sandboxes'"):
        find_place({"PROCTOR_SCRATCH": str(tmp_path / "file" / "x")})


def test_a_directory_that_somebody_else_made_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(tmp_path)
    with pytest.raises(SandboxError, match="expected a directory that belongs to this user"):
        make_private(tmp_path / "mine")


def test_without_any_variable_it_is_the_home_that_the_system_knows() -> None:
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    assert scratch_roots({})[0] == home / ".cache" / "proctor" / "scratch"


def test_a_user_without_any_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 3_999_999_999)
    with pytest.raises(SandboxError, match="set PROCTOR_CACHE or HOME"):
        scratch_roots({})


def test_the_file_system_of_a_path_is_that_of_its_last_mount() -> None:
    assert file_system_of(Path("/proc/self")) == "proc"
    assert any(mount.target == "/" for mount in list_mounts())


# Runs


def test_a_run_lives_as_long_as_its_process() -> None:
    run = this_run()
    assert parse_run_id(str(run)) == run
    assert run.is_living
    assert not RunId(run.pid, run.started + 1, run.namespace).is_living
    assert RunId(run.pid, run.started + 1, run.namespace + 1).is_living
    assert parse_run_id("not-a-run") is None


def test_a_process_that_is_dead_and_not_buried_does_not_live() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        started = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
        assert not RunId(child.pid, started, this_run().namespace).is_living


def test_a_session_has_an_upper_like_the_layer_below_it(place: Path) -> None:
    below = place / "below"
    below.mkdir()
    below.chmod(0o1777)
    session = open_run(find_place().root).open_session("a/b: ../c")
    upper, work = session.add_part(0, below)
    assert upper.stat().st_mode & 0o7777 == 0o1777
    assert not list(work.iterdir())
    assert session.directory.name.startswith("a-b-..-c.")
    assert session.directory.stat().st_mode & 0o777 == 0o700
    delete_tree(session.directory)


# What dead runs left

DYING = """
import os, signal, sys
from pathlib import Path
from proctor.environments.sandbox.scratch import find_place, open_run
run = open_run(find_place().root)
for name in sys.argv[2:]:
    session = run.open_session(name)
    upper, _ = session.add_part(0, Path("/"))
    trial = Path(sys.argv[1]) / name
    session.write_note(name, trial, {"/": str(upper)})
    for path in ("logs/agent", "logs/artifacts", "workspace/artifacts"):
        (upper / path).mkdir(parents=True)
    (upper / "logs/agent/log.txt").write_text("agent's")
    (upper / "logs/artifacts/made.txt").write_text("made")
    (upper / "workspace/trajectory.jsonl").write_text("{}\\n")
    (upper / "workspace/artifacts/a.png").write_text("png")
    (upper / "logs/agent/link").symlink_to("/etc/passwd")
    os.mkfifo(upper / "logs/agent/pipe")
print(run.directory, flush=True)
if os.environ.get("LIVE"):
    sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_run(trials: Path, *names: str) -> Path:
    """The scratch that a killed run left."""
    argv = [sys.executable, "-c", DYING, str(trials), *names]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    return Path(done.stdout.strip())


def test_evidence_is_brought_into_the_trial_and_the_scratch_deleted(place: Path) -> None:
    trial = place / "trials" / "t1"
    (trial / "agent").mkdir(parents=True)
    left = killed_run(place / "trials", "t1")
    reaped = reap_dead_runs()
    assert not left.exists()
    assert (trial / "agent/log.txt").read_text() == "agent's"
    assert (trial / "artifacts/made.txt").read_text() == "made"
    assert (trial / "agent/trajectory.jsonl").read_text() == "{}\n"
    assert (trial / "agent/artifacts/a.png").read_text() == "png"
    assert sorted(path.name for path in reaped.salvaged) == [
        *("a.png", "log.txt", "made.txt", "trajectory.jsonl")
    ]
    assert left.name in reaped.runs
    assert sorted(kept.partition(":")[0] for kept in reaped.kept) == ["link", "pipe"]
    assert reap_dead_runs().sessions == []


def test_whoever_else_reaps_a_run_is_waited_for(place: Path) -> None:
    (place / "trials" / "t1").mkdir(parents=True)
    left = killed_run(place / "trials", "t1")
    held = os.open(left / "lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with ThreadPoolExecutor() as beside:
        reaping = beside.submit(reap_dead_runs)
        with pytest.raises(TimeoutError):
            reaping.result(timeout=0.1)
        assert left.exists()
        os.close(held)
        assert reaping.result(timeout=60).kept
    assert not left.exists()


def test_nothing_that_is_in_the_trial_is_replaced(place: Path) -> None:
    agent = place / "trials" / "t1" / "agent"
    agent.mkdir(parents=True)
    (agent / "log.txt").write_text("collected before")
    (agent / "trajectory.jsonl").write_text("{}\n")
    killed_run(place / "trials", "t1")
    reap_dead_runs()
    assert (agent / "log.txt").read_text() == "collected before"
    assert (agent / "log.txt.salvaged").read_text() == "agent's"
    assert not (agent / "trajectory.jsonl.salvaged").exists()


def test_salvaging_twice_copies_nothing_twice(place: Path) -> None:
    (place / "trials" / "t1").mkdir(parents=True)
    left = killed_run(place / "trials", "t1")
    (session,) = left.glob("t1.*")
    assert len(salvage(session).copied) == 4
    assert salvage(session).copied == []
    reap_dead_runs()


def test_a_link_in_the_trial_leads_salvage_nowhere(place: Path) -> None:
    trial = place / "trials" / "t1"
    trial.mkdir(parents=True)
    (place / "elsewhere").mkdir()
    (trial / "agent").symlink_to(place / "elsewhere")
    killed_run(place / "trials", "t1")
    reap_dead_runs()
    assert list((place / "elsewhere").iterdir()) == []


def test_a_link_in_the_sandbox_leads_salvage_nowhere(place: Path) -> None:
    (place / "trials" / "t1").mkdir(parents=True)
    (session,) = killed_run(place / "trials", "t1").glob("t1.*")
    logs = session / "parts/0/upper/logs"
    delete_tree(logs)
    (place / "secrets" / "agent").mkdir(parents=True)
    (place / "secrets" / "agent" / "key").write_text("key")
    logs.symlink_to(place / "secrets")
    assert {path.name for path in salvage(session).copied} == {"a.png", "trajectory.jsonl"}
    reap_dead_runs()


def test_evidence_of_a_trial_that_is_gone_is_kept_and_named(place: Path) -> None:
    (place / "trials" / "t2").mkdir(parents=True)
    left = killed_run(place / "trials", "t1", "t2")
    reaped = reap_dead_runs()
    assert [path.name.partition(".")[0] for path in left.iterdir() if path.is_dir()] == ["t1"]
    assert any("t1: the trial no longer exists" in sentence for sentence in reaped.kept)
    (place / "trials" / "t1").mkdir()
    reap_dead_runs()
    assert not left.exists()


def test_a_dry_run_touches_nothing(place: Path) -> None:
    (place / "trials" / "t1").mkdir(parents=True)
    left = killed_run(place / "trials", "t1")
    reaped = reap_dead_runs(dry_run=True)
    assert [path.parent for path in reaped.sessions] == [left]
    assert left.exists()
    assert list((place / "trials" / "t1").iterdir()) == []
    reap_dead_runs()


def test_a_run_that_lives_is_not_touched(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever holds a lock is waited for; this one holds it as long as the test goes on.
    monkeypatch.setattr(reap, "_OTHERS_PATIENCE_SEC", 0.2)
    argv = [sys.executable, "-c", DYING, str(place / "trials"), "t1"]
    live = {**os.environ, "LIVE": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, text=True, env=live, stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        scratch = Path(child.stdout.readline().strip())
        assert reap_dead_runs().sessions == []
        assert list(scratch.glob("t1.*/session.json"))
        # Nor one that its lock alone shows to live.
        stranger = scratch.with_name(str(RunId(1, 1, this_run().namespace)))
        scratch.rename(stranger)
        assert reap_dead_runs().sessions == []
        stranger.rename(scratch)
    (place / "trials" / "t1").mkdir(parents=True)
    assert scratch.name in reap_dead_runs().runs


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give files away")
def test_directories_of_other_users_are_not_looked_into(place: Path) -> None:
    find_place()
    forged = place / "scratch" / str(RunId(1, 1, this_run().namespace))
    session = forged / "t1.x"
    session.mkdir(parents=True)
    os.chown(forged, 65534, 65534)
    assert reap_dead_runs().sessions == []
    assert session.exists()


def test_a_run_that_was_killed_while_it_made_its_directory_is_reaped(place: Path) -> None:
    find_place()
    half = place / "scratch" / f".{RunId(1, 1, this_run().namespace)}.x1"
    half.mkdir()
    reap_dead_runs()
    assert not half.exists()


# Deleting


def make_odd(top: Path) -> Path:
    """A tree that is deeper than a path may be long, with modes that keep its owner out."""
    top.mkdir()
    deep = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("directory", dir_fd=deep)
        below = os.open("directory", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    closed = top / "closed"
    (closed / "inner").mkdir(parents=True)
    (closed / "inner" / "file").touch()
    (top / "link").symlink_to("/")
    os.mkfifo(top / "pipe")
    (closed / "inner").chmod(0)
    closed.chmod(0)
    return top


def test_a_tree_of_any_depth_and_any_modes_is_deleted(tmp_path: Path) -> None:
    delete_tree(make_odd(tmp_path / "odd"))
    assert not (tmp_path / "odd").exists()
    delete_tree(tmp_path / "odd")


def test_an_ordinary_user_deletes_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with open_directory() as place:
        with unprivileged():
            delete_tree(make_odd(place / "odd"))
        assert not (place / "odd").exists()


def test_a_session_without_a_note_is_nobodys_evidence(tmp_path: Path) -> None:
    session = Session(tmp_path)
    assert salvage(session.directory).copied == []
