"""`proctor run` by an ordinary user: no root, no daemon, nothing set up for it."""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.environments.sandbox.limits import PREFIX, find_hierarchies
from proctor.environments.sandbox.reap import reap_dead_runs
from proctor.environments.sandbox.scratch import this_run
from tests.become_user import IDS, NO_NAMESPACES, OVERLAY, ROOT
from tests.cli.programs import Ran
from tests.cli.programs import command_line as proctor_line
from tests.cli.test_run import make_task
from tests.environments.sandbox.registries import small_registry
from tests.environments.sandbox.rootfs import make_rootfs, pack
from tests.environments.sandbox.saved import Saved, layer
from tests.environments.sandbox.trees import entry
from tests.ordinary_user import command_line, environment, give, ordinary_home, run_as_ordinary_user

EXAMPLES = ROOT / "examples"
TASKS = EXAMPLES / "tasks"
BY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can furnish a machine")
MOST_LINES_OF_DEMO = 60
BY_NOBODY_MAPPED = pytest.mark.skipif(
    os.geteuid() != 0, reason="whoever runs this may have subordinate ids of their own"
)

type Run = Callable[..., Ran]


@pytest.fixture
def home() -> Iterator[Path]:
    with ordinary_home() as directory:
        yield directory


@pytest.fixture
def run(home: Path) -> Run:
    """`proctor WORDS…` as her, in her home."""

    def run_there(*words: object, machine: tuple[str, ...] = (), **changes: str | None) -> Ran:
        given = {name: value for name, value in changes.items() if value is not None}
        env = environment(home, **given)
        for name in changes.keys() - given.keys():
            del env[name]
        return run_as_ordinary_user("proctor", *words, home=home, env=env, machine=machine)

    return run_there


def rewards(home: Path, where: str = "jobs") -> list[float | None]:
    """Rewards of the one job that is there, by the names of the tasks."""
    (job,) = (home / where).iterdir()
    return [load(path)["verifier_result"] and reward_of(path) for path in results(job)]


def reward_of(path: Path) -> float:
    value = load(path)["verifier_result"]["rewards"]["reward"]
    assert isinstance(value, float | int)
    return value


def results(job: Path) -> list[Path]:
    return sorted(job.glob("*/result.json"))


def findings(home: Path) -> set[str]:
    """Codes of all findings."""
    texts = [load(path) for path in (home / "jobs").glob("*/*/findings.json")]
    return {finding["code"] for listed in texts for finding in listed}


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def scratch(home: Path) -> list[Path]:
    """What is left of sandboxes."""
    return list((home / ".cache" / "proctor" / "scratch").iterdir())


def error_of(home: Path) -> str:
    """What the one trial failed with."""
    (path,) = (home / "jobs").glob("*/*/result.json")
    return str(load(path)["exception_info"]["exception_message"])


# Agents


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1), ("nop", 0)])
def test_the_examples_are_sat(run: Run, home: Path, agent: str, reward: int) -> None:
    ran = run("run", "-p", TASKS, "-a", agent)
    assert ran.code == 0, ran.err
    assert rewards(home) == [reward, reward]
    assert findings(home) == {"base-substituted", "usr-read-only"}
    assert scratch(home) == []


def test_a_cheat_scores_nothing_and_is_found_out(run: Run, home: Path) -> None:
    script = EXAMPLES / "agents" / "cheat.sh"
    ran = run("run", "-p", TASKS, "-a", "scripted", "--ak", f"script={script}")
    assert ran.code == 0, ran.err
    assert rewards(home) == [0, 0]
    assert findings(home) >= {"reward-planted", "tests-planted"}


def test_her_own_agent_is_put_in_and_run(run: Run, home: Path) -> None:
    tree = EXAMPLES / "agents" / "own"
    ran = run(*("run", "-p", TASKS, "--agent-tree", tree, "--command", "/installed-agent/agent.sh"))
    assert ran.code == 0, ran.err
    assert rewards(home) == [1, 0.5]


# What an environment is made from


def test_a_dockerfile_is_built(run: Run, home: Path) -> None:
    task = make_task(home / "task")
    (task / "environment" / "data.txt").write_text("of the task\n")
    (task / "environment" / "Dockerfile").write_text(
        "FROM debian:12\nCOPY data.txt /srv/\nRUN cp /srv/data.txt /opt/copied && rm -r /srv\n"
    )
    (task / "tests" / "test.sh").write_text(
        "test ! -e /srv && grep -c task /opt/copied > /logs/verifier/reward.txt\n"
    )
    ran = run("run", "-p", task, "-a", "nop")
    assert (ran.code, rewards(home)) == (0, [1]), ran.err + ran.out


def test_a_dockerfile_that_changes_the_hosts_own_files_fails_with_a_hint(
    run: Run, home: Path
) -> None:
    task = make_task(home / "task")
    (task / "environment" / "Dockerfile").write_text("FROM debian:12\nRUN touch /usr/bin/new\n")
    assert run("run", "-p", task, "-a", "nop").code == 3
    assert error_of(home).startswith(
        "Build failed: RUN touch /usr/bin/new\n"
        "touch: cannot touch '/usr/bin/new': Permission denied\n"
        "(an unprivileged user's sandbox cannot change the host's files, such as those below /usr; "
        "build on an imported image, or run as root)\n"
        "(The Dockerfile is FROM debian:12, which is not in the image store; the host's system ("
    )


def test_an_image_is_imported_and_run_on(run: Run, home: Path) -> None:
    make_rootfs(home / "small")
    task = make_task(home / "task")
    (task / "tests" / "test.sh").write_text(
        "test -e /bin/cat && test ! -e /usr/bin/python3 && echo 1 > /logs/verifier/reward.txt\n"
    )
    # The image has no chmod.
    (task / "tests" / "test.sh").chmod(0o755)
    imported = run("image", "import", "small", home / "small")
    assert imported.code == 0, imported.err
    ran = run("run", "-p", task, "-a", "nop", "--base", "small")
    assert (ran.code, rewards(home)) == (0, [1]), ran.err + ran.out
    record = next((home / "jobs").glob("*/*/record.json"))
    assert "small:latest@sha256:" in record.read_text()
    assert not findings(home) & {"reward-planted", "tests-planted"}


@BY_NOBODY_MAPPED
def test_another_user_than_root_is_refused_in_a_sentence(run: Run, home: Path) -> None:
    task = make_task(home / "task", agent='user = "daemon"')
    ran = run("run", "-p", task, "--command", "id")
    assert ran.code == 3
    assert error_of(home).startswith(
        "user 'daemon': without subordinate ids, an unprivileged user's sandbox has no users "
        "but root; add lines for this user to /etc/subuid and /etc/subgid and install "
    )


@BY_ROOT
@pytest.mark.skipif(shutil.which("newuidmap") is None, reason="newuidmap is not installed")
def test_with_subordinate_ids_another_user_is_there_and_its_files_go(run: Run, home: Path) -> None:
    task = make_task(home / "task", agent='user = "daemon"')
    (task / "environment" / "Dockerfile").write_text(
        "FROM debian:12\nRUN mkdir /theirs && chown daemon /theirs && chmod 700 /theirs\n"
    )
    (task / "tests" / "test.sh").write_text(
        "test $(stat -c %U /theirs/x) = daemon && echo 1 > /logs/verifier/reward.txt\n"
    )
    ran = run("run", "-p", task, "--command", "touch /theirs/x", machine=(IDS,))
    assert (ran.code, rewards(home)) == (0, [1]), ran.err + ran.out
    assert scratch(home) == []


# Images of other users


FOREIGN = (
    entry("srv/hers", uid=1000, gid=1000),
    entry("srv/its", uid=33, gid=33),
    entry("srv/roots", uid=0, gid=0),
)


@BY_ROOT
@pytest.mark.parametrize("how", ["docker_image", "FROM", "COPY"])
@pytest.mark.parametrize("machine", [(), (IDS,)])
def test_owners_that_an_image_lost_are_on_record(
    run: Run, home: Path, tmp_path: Path, how: str, machine: tuple[str, ...]
) -> None:
    bottom = pack(make_rootfs(tmp_path / "root"), tmp_path / "root.tar").read_bytes()
    with small_registry() as registry:
        plain = registry.put("plain", Saved((bottom,), "gzip"))
        foreign = registry.put("foreign", Saved((bottom, layer(*FOREIGN)), "gzip"))
        named = f'docker_image = "{foreign}"' if how == "docker_image" else ""
        task = make_task(home / "task", environment=named)
        (task / "environment" / "Dockerfile").write_text(
            f"FROM {plain}\nCOPY --from={foreign} /srv /srv\n"
            if how == "COPY"
            else f"FROM {foreign}\nRUN touch /srv/made\n"
        )
        # The image has no chmod.
        (task / "tests" / "test.sh").chmod(0o755)
        ran = run("run", "-p", task, "-a", "nop", PROCTOR_BASE=None, machine=machine)
    assert (ran.code, rewards(home)) == (0, [1]), ran.err + ran.out
    if machine:
        assert "owners-squashed" not in findings(home)
        return
    (path,) = (home / "jobs").glob("*/*/findings.json")
    found = [one for one in load(path) if one["code"] == "owners-squashed"]
    (finding,) = found
    assert finding["detail"]["n_entries"] == 2
    assert finding["detail"]["image"].startswith(f"{foreign}@sha256:")
    assert finding["message"].startswith(f"{foreign}: 2 entries of other users belong to root")


# Limits


@pytest.mark.parametrize(("asked", "is_found"), [("", False), ("memory_mb = 100", True)])
@pytest.mark.skipif(os.geteuid() != 0, reason="whoever runs this may have a group of their own")
def test_limits_that_cannot_be_had_are_a_finding_if_the_task_asks(
    run: Run, home: Path, asked: str, is_found: bool
) -> None:
    task = make_task(home / "task", environment=asked)
    ran = run("run", "-p", task, "-a", "nop")
    assert (ran.code, rewards(home)) == (0, [1]), ran.err
    assert ("limits-not-enforced" in findings(home)) == is_found


# Ends


def test_what_was_made_unreadable_inside_is_deleted(run: Run, home: Path) -> None:
    odd = "mkdir -p /odd/a/b && touch /odd/a/b/c && chmod 0 /odd/a/b/c /odd/a/b /odd/a /odd"
    ran = run("run", "-p", TASKS / "greet", "--command", odd)
    assert (ran.code, rewards(home), scratch(home)) == (0, [0], []), ran.err


def test_a_killed_run_leaves_no_process_and_is_gone_on_with(run: Run, home: Path) -> None:
    mark = f"{os.getpid()}{time.time_ns()}"
    words = ("--command", f': {mark}; sleep "$PAUSE"', "--ae", "PAUSE=${PAUSE}", "--job-name", "j")
    line = command_line(*proctor_line("run", "-p", TASKS / "greet", *words))
    env = environment(home, PAUSE="600")
    with subprocess.Popen(line, cwd=home, env=env, stderr=subprocess.DEVNULL) as runner:
        wait_for(lambda: bool(find_processes(mark, but=runner.pid)), runner)
        inside = [os.pidfd_open(pid) for pid in descendants(runner.pid)]
        assert len(inside) >= 3  # the zygote, PID 1, the command
        runner.kill()
    for handle in inside:
        assert select.select([handle], [], [], 60)[0]
        os.close(handle)
    assert find_processes(mark) == []
    (left,) = scratch(home)
    cleaned = run("clean")
    assert (cleaned.code, f"deleted: {left}/greet__" in cleaned.out) == (0, True), cleaned
    assert scratch(home) == []
    ran = run("resume", "jobs/j", PAUSE="0")
    assert (ran.code, rewards(home)) == (0, [0]), ran.err
    (kept,) = (home / "jobs" / "j").glob("greet__*/attempts/1")
    assert (kept / "record.json").exists()


@BY_ROOT
def test_what_another_users_killed_run_left_is_not_hers_to_clean(run: Run) -> None:
    tops = [hierarchy.parent for hierarchy in find_hierarchies()]
    if not tops or not os.access(tops[0], os.W_OK):
        pytest.skip("no control group can be made here")
    dead = replace(this_run(), started=0)
    group = tops[0] / f"{PREFIX}{dead}-t"
    group.mkdir()
    try:
        assert group in reap_dead_runs(dry_run=True).cgroups
        cleaned = run("clean")
    finally:
        with suppress(FileNotFoundError):  # root's own clean, in a test beside this one
            group.rmdir()
    assert str(group) not in cleaned.out


def find_processes(mark: str, but: int = 0) -> list[int]:
    """Processes that have a mark in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes() and int(path.parent.name) != but:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    children = [int(word) for word in text.split()]
    return children + [one for child in children for one in descendants(child)]


def wait_for(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < end, "it did not come to that in a minute"
        time.sleep(0.02)


# Refusals


def test_a_task_that_cannot_be_read_is_named_and_the_rest_runs(run: Run, home: Path) -> None:
    make_task(home / "set" / "open")
    closed = make_task(home / "set" / "closed")
    give(closed)
    closed.chmod(0)
    ran = run("run", "-p", "set", "-a", "nop")
    assert ran.code == 3
    assert "Permission denied" in ran.err
    assert "set/closed" in ran.err
    assert rewards(home) == [1]


@pytest.mark.parametrize("name", ["set", "set/task"])
def test_a_directory_that_cannot_be_read_is_refused(run: Run, home: Path, name: str) -> None:
    make_task(home / "set" / "task")
    give(home / name)
    (home / name).chmod(0)
    ran = run("run", "-p", name, "-a", "nop")
    (home / name).chmod(0o755)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert "Permission denied" in ran.err
    assert not (home / "jobs").exists()


def test_a_jobs_directory_that_cannot_be_made_is_refused(run: Run) -> None:
    ran = run("run", "-p", TASKS, "-a", "nop", "-o", "/usr/jobs")
    assert ran.code == 2
    assert ran.err == (
        "proctor: /usr/jobs: cannot be made: Permission denied; --jobs-dir names another place for "
        "jobs\n"
    )


@BY_ROOT
def test_without_user_namespaces_it_is_said_once_and_nothing_is_made(run: Run, home: Path) -> None:
    ran = run("run", "-p", TASKS, "-a", "oracle", machine=(NO_NAMESPACES,))
    assert ran.code == 2
    assert ran.err == (
        "proctor: sandboxes cannot be made on this machine: making namespaces: No space left on "
        "device, errno 28; user.max_user_namespaces forbids it to unprivileged users: change that, "
        "or run as root\n"
    )
    assert not (home / "jobs").exists()
    assert scratch(home) == []


# Places


@pytest.mark.parametrize(
    "value",
    [
        "/nonexistent",
        pytest.param(None, marks=pytest.mark.soak),
        pytest.param("/proc", marks=pytest.mark.soak),
    ],
)
def test_without_a_home_what_sandboxes_write_is_kept_in_memory_or_where_the_system_says(
    run: Run, home: Path, value: str | None
) -> None:
    refused = run("run", "-p", TASKS, "-a", "oracle", HOME=value)
    assert refused.code == 2
    assert "--key or PROCTOR_KEY names another place, --no-ledger seals nothing" in refused.err
    ran = run("run", "-p", TASKS, "-a", "oracle", "--no-ledger", HOME=value)
    assert (ran.code, rewards(home)) == (0, [1, 1]), ran.err + ran.out
    assert run("clean", HOME=value).out.startswith("nothing to clean")


def test_the_cache_lies_where_the_variables_say(run: Run, home: Path) -> None:
    ran = run("run", "-p", TASKS, "-a", "oracle", XDG_CACHE_HOME=str(home / "xdg"))
    assert (ran.code, rewards(home)) == (0, [1, 1]), ran.err
    assert (home / "xdg" / "proctor" / "layers").is_dir()
    assert not (home / ".cache").exists()


def test_all_of_it_may_be_in_memory(run: Run, home: Path) -> None:
    place = Path("/dev/shm", home.name)  # noqa: S108 - a name that mkdtemp gave
    place.mkdir()
    give(place)
    try:
        places = {"TMPDIR": str(place), "PROCTOR_CACHE": str(place / "cache")}
        ran = run("run", "-p", TASKS, "-a", "oracle", "-o", place / "jobs", **places)
        assert (ran.code, rewards(place)) == (0, [1, 1]), ran.err + ran.out
    finally:
        shutil.rmtree(place)


@BY_ROOT
def test_a_cache_that_can_hold_no_overlay_is_done_without(home: Path) -> None:
    script = f"proctor run -p {TASKS} -a oracle && proctor audit jobs/* && proctor clean"
    ran = run_as_ordinary_user("/bin/sh", "-c", script, home=home, machine=(OVERLAY,))
    assert ran.code == 0, ran.err
    assert "  mean  1\n" in ran.out
    assert ran.out.endswith("nothing to clean\n")


def test_the_demo_needs_no_root(home: Path) -> None:
    ran = run_as_ordinary_user(ROOT / "scripts" / "demo", home=home)
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) <= MOST_LINES_OF_DEMO


@pytest.mark.soak
def test_the_tour_needs_no_root(home: Path) -> None:
    ran = run_as_ordinary_user(ROOT / "scripts" / "tour", home=home)
    assert ran.code == 0, ran.err
