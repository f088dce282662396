"""`proctor run --verify-again` with real sandboxes, by root and by an ordinary user."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import ROOT, Proctor, command_line, environment
from tests.cli.test_run import NULL, make_task
from tests.ordinary_user import ordinary_home, run_as_ordinary_user
from tests.parity.shared import made_once

N = 2
COUNTING = """n=$(cat /app/n 2>/dev/null || echo 0); mkdir -p /app; echo $((n + 1)) > /app/n
echo $n > /logs/verifier/reward.txt
"""
"""Tests that change what they look at: only where the state is the same, so is the result."""
WRITES = """mkdir -p /app /made/inner; echo 5 > /app/n; ln /app/n /made/second; rm -rf /etc/apt
mkdir /etc/apt; echo new > /etc/apt/only; rm /etc/hostname; truncate -s 64M /made/holes
mkfifo /made/pipe; ln -s /nowhere /made/link; chmod 0 /made/inner; chmod 604 /made/second
rm -rf /logs/agent/* /srv; touch -d 2001-01-01 /made/second
"""
SEES = """set -e; cd /made
test "$(ls /etc/apt)" = only; test ! -e /etc/hostname; test ! -e /srv
test "$(stat -c '%h %a %Y' second)" = "2 604 $(date -d 2001-01-01 +%s)"
test "$(stat -c '%s %b' holes)" = "67108864 0"; test -p pipe; test "$(readlink link)" = /nowhere
test "$(stat -c %a inner)" = 0; test /app/n -ef second
rm -rf /made /etc/apt; echo gone > /etc/hostname
echo 1 > /logs/verifier/reward.txt
"""
SERVES = "mkdir -p /app; (while :; do sleep 1; done) > /dev/null 2>&1 & disown"
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
STEPS = '[[steps]]\nname = "one"\n\n[[steps]]\nname = "two"\n'
TASKS: Mapping[str, Mapping[str, str]] = {
    "counting": {"tests/test.sh": COUNTING, "solution/solve.sh": "true\n"},
    "writes": {"tests/test.sh": SEES, "solution/solve.sh": WRITES},
    "serves": {"tests/test.sh": COUNTING, "solution/solve.sh": SERVES},
    "memory": {"tests/test.sh": COUNTING, "solution/solve.sh": "echo 1 > /dev/shm/kept\n"},
    "devices": {"tests/test.sh": COUNTING, "solution/solve.sh": "echo 1 > /dev/kept\n"},
    "slow": {
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt; exec sleep 600\n",
        "solution/solve.sh": "true\n",
        "task.toml": "[verifier]\ntimeout_sec = 0.2\n",
    },
    "apart": {
        "tests/test.sh": "cat /app/kept/n > /logs/verifier/reward.txt; echo 9 > /app/kept/n\n",
        "tests/Dockerfile": "FROM debian:12\nCOPY . /tests/\n",
        "solution/solve.sh": "mkdir -p /app/kept; echo 4 > /app/kept/n\n",
        "task.toml": f'artifacts = ["/app/kept"]\n{SEPARATE}',
    },
    "steps": {
        "tests/test.sh": COUNTING,
        **{f"steps/{name}/instruction.md": "Do it.\n" for name in ("one", "two")},
        **{f"steps/{name}/solution/solve.sh": "true\n" for name in ("one", "two")},
        "task.toml": STEPS,
    },
}


def write_tasks(place: Path) -> None:
    ordinary = {"instruction.md": "Do it.\n", "environment/Dockerfile": "FROM debian:12\n"}
    for name, files in TASKS.items():
        toml = files.get("task.toml", "") + '[environment]\nnetwork_mode = "no-network"\n'
        for path, text in {**ordinary, **files, "task.toml": toml}.items():
            (place / name / path).parent.mkdir(parents=True, exist_ok=True)
            (place / name / path).write_text(text)


WORDS = ("run", "-p", "set", "-a", "oracle", "--verify-again", N, "--job-name", "job", "--json")


def run_by_root(place: Path) -> None:
    write_tasks(place / "set")
    variables = {"PROCTOR_CACHE": str(place / "cache"), "PROCTOR_LEDGER": str(place / "ledger")}
    done = subprocess.run(
        command_line(*WORDS),
        cwd=place,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 3, done.stderr
    (place / "report.json").write_text(done.stdout)
    shutil.move(place / "cache" / "scratch", place / "scratch")


def run_by_user(place: Path) -> None:
    with ordinary_home() as home:
        write_tasks(home / "set")
        ran = run_as_ordinary_user("proctor", *WORDS, home=home)
        assert ran.code == 3, ran.err
        (place / "report.json").write_text(ran.out)
        shutil.copytree(home / "jobs", place / "jobs")
        shutil.copytree(home / ".cache" / "proctor" / "scratch", place / "scratch")


@pytest.fixture(scope="module", params=["root", "an ordinary user"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the job lies, run once; not to be changed."""
    if request.param == "root":
        if os.geteuid() != 0:
            pytest.skip("root is somebody else")
        return made_once(tmp_path_factory, "again-root", run_by_root)
    return made_once(tmp_path_factory, "again-user", run_by_user)


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def states_of(place: Path, task: str) -> list[Any]:
    (path,) = (place / "jobs" / "job").glob(f"{task}__*/verify-again.json")
    states: list[Any] = load(path)["states"]
    return states


def results_of(state: Any) -> list[str]:
    return [each["result"] for each in state["verifications"]]


def rewards(*values: float) -> list[str]:
    return [f'{{"reward": {value}}}' for value in values]


@pytest.mark.parametrize(
    ("task", "kind", "results"),
    [
        ("counting", "frozen", rewards(0.0, 0.0, 0.0)),
        ("writes", "frozen", rewards(1.0, 1.0, 1.0)),
        ("serves", "live", rewards(0.0, 1.0, 2.0)),
        ("memory", "live", rewards(0.0, 1.0, 2.0)),
        ("devices", "live", rewards(0.0, 1.0, 2.0)),
        ("slow", "frozen", ["VerifierTimeoutError"] * 3),
        ("apart", "frozen", rewards(4.0, 4.0, 4.0)),
    ],
)
def test_a_state_is_verified_as_often_as_asked_for(
    place: Path, task: str, kind: str, results: list[str]
) -> None:
    (state,) = states_of(place, task)
    assert (state["state"], state["reason"], state["step"]) == (kind, None, None)
    assert results_of(state) == results


def test_every_step_is_verified_on_what_it_left(place: Path) -> None:
    one, two = states_of(place, "steps")
    assert (one["step"], results_of(one)) == ("one", rewards(0.0, 0.0, 0.0))
    assert (two["step"], results_of(two)) == ("two", rewards(1.0, 1.0, 1.0))


def test_what_each_verification_left_is_kept(place: Path) -> None:
    (trial,) = (place / "jobs" / "job").glob("serves__*")
    left = [trial / "verifier", *(trial / "verify-again" / str(n) for n in (1, 2))]
    assert [(each / "reward.txt").read_text() for each in left] == ["0\n", "1\n", "2\n"]
    assert all((each / "test-stdout.txt").exists() for each in left)


def test_disagreement_is_a_finding_and_agreement_is_none(place: Path) -> None:
    flaky = {
        path.parent.name.partition("__")[0]
        for path in (place / "jobs" / "job").glob("*/findings.json")
        for finding in load(path)
        if finding["code"] == "verifier-flaky"
    }
    assert flaky == {"serves", "memory", "devices"}


def test_the_job_says_how_often_the_tests_of_each_task_disagree(place: Path) -> None:
    flakes = load(place / "jobs" / "job" / "flakes.json")
    assert load(place / "report.json")["verify_again"] == flakes
    assert (flakes["n"], flakes["not_again"]) == (N, [])
    rates = {
        (each["task"], each["step"], each["state"]): each["flake_rate"] for each in flakes["tasks"]
    }
    assert rates == {
        ("apart", None, "frozen"): 0.0,
        ("counting", None, "frozen"): 0.0,
        ("devices", None, "live"): 1.0,
        ("memory", None, "live"): 1.0,
        ("serves", None, "live"): 1.0,
        ("slow", None, "frozen"): 0.0,
        ("steps", "one", "frozen"): 0.0,
        ("steps", "two", "frozen"): 0.0,
        ("writes", None, "frozen"): 0.0,
    }
    serves = next(each for each in flakes["tasks"] if each["task"] == "serves")
    (trial,) = serves["trials"]
    result = load(place / "jobs" / "job" / trial / "result.json")
    assert serves["task_checksum"] == result["task_checksum"]
    assert (serves["verifications"], serves["results"], serves["n_differing"]) == (3, 3, 2)


def test_nothing_is_left_in_the_scratch(place: Path) -> None:
    assert list((place / "scratch").iterdir()) == []


def test_the_files_are_evidence_and_an_audit_is_not_disturbed(
    place: Path, proctor: Proctor, tmp_path: Path
) -> None:
    assert proctor("audit", place / "jobs" / "job").code == 0
    (trial,) = (place / "jobs" / "job").glob("serves__*")
    ledger = tmp_path / "ledger"
    sealed = proctor("ledger", "seal", trial, "--ledger", ledger)
    assert sealed.code == 0, sealed.err
    shown = proctor("show", trial.name, "--ledger", ledger, "--json")
    assert "verify-again/2/reward.txt" in shown.out
    assert "verify-again.json" in shown.out
    assert "verifier-flaky" in shown.out


# Wrong use, other environments, resume


@pytest.mark.parametrize("value", ["-1", "101", "1.5", "often", ""])
def test_what_is_no_number_from_0_to_100_is_refused(proctor: Proctor, value: str) -> None:
    ran = proctor("run", "-p", ROOT, f"--verify-again={value}")
    assert ran.code == 2
    assert f"{value!r}; expected a whole number from 0 to 100" in ran.err


def test_it_does_not_go_without_verification(proctor: Proctor, tmp_path: Path) -> None:
    words = ("--disable-verification", "--verify-again", 1)
    ran = proctor("run", "-p", make_task(tmp_path / "task"), *NULL, *words)
    assert (ran.code, "requires verification, which is disabled" in ran.err) == (2, True)


def test_resume_keeps_the_setting_and_makes_the_same_of_the_same_trials(
    proctor: Proctor, tmp_path: Path
) -> None:
    task, jobs = make_task(tmp_path / "task"), tmp_path / "jobs"
    words = ("-p", task, *NULL, "-o", jobs, "--job-name", "job", "-k", 3)
    ran = proctor("run", *words, "--verify-again", 1)
    assert ran.code == 0, ran.err
    assert "verified 1 time more (flakes.json); scores are unchanged:" in ran.out
    assert "flake rate 0, 1 result in 6 verifications of 3 trials" in ran.out
    flakes = (jobs / "job" / "flakes.json").read_bytes()
    first = next(jobs.glob("job/*/result.json"))
    first.unlink()
    assert proctor("resume", jobs / "job").code == 0
    assert (jobs / "job" / "flakes.json").read_bytes() == flakes
    assert (first.parent / "verify-again" / "1" / "reward.txt").read_text() == "1\n"
    other = proctor("run", *words, "--verify-again", 2)
    assert (other.code, "verify_again is 1 there and 2 now" in other.err) == (2, True)


def test_an_environment_that_cannot_keep_a_state_is_named(proctor: Proctor, tmp_path: Path) -> None:
    words = ("--environment-import-path", "tests.environments.plain_env:PlainEnvironment")
    ran = proctor(
        *("run", "-p", make_task(tmp_path / "task"), "-a", "nop", "-o", tmp_path / "jobs"),
        *(*words, "--verify-again", 2),
    )
    assert "PlainEnvironment is an environment that cannot do that" in ran.out
