"""`proctor task try`: what is wrong with a task, and the output that shows it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proctor.task.scaffold import render_example
from tests.cli.programs import Proctor
from tests.task.trees import TASKS, write

REWARD = "/logs/verifier/reward.txt"
CASES: Mapping[str, tuple[Mapping[str, str], list[str], str]] = {
    "build": (
        {"environment/Dockerfile": "FROM debian:12\nRUN echo 'cc: fatal error: no input'; false\n"},
        ["no-reward"],
        "cc: fatal error: no input\n"
        "      (The Dockerfile is FROM debian:12, which is not in the image store; the host's "
        "system (",
    ),
    "solution": (
        {"solution/solve.sh": "#!/bin/bash\nno-such-tool\n"},
        ["oracle-failed"],
        "solution/solve.sh exited with code 127\n      /solution/solve.sh: line 2: no-such-tool: ",
    ),
    "tests": (
        {"solution/solve.sh": "#!/bin/bash\necho 41 > /app/answer.txt\n"},
        ["oracle-failed"],
        "FAILED: /app/answer.txt: expected 42, found: 41\n",
    ),
    "nop": (
        {"tests/test.sh": f"#!/bin/bash\necho 1 > {REWARD}\n"},
        ["nop-passed"],
        "doing nothing",
    ),
    "no-zero": (
        {"tests/test.sh": f"#!/bin/bash\ntest -f /app/answer.txt && echo 1 > {REWARD}\n"},
        ["nop-unscored"],
        "RewardFileNotFoundError",
    ),
    "two-rewards": (
        {
            "tests/test.sh": "#!/bin/bash\ngot=$(grep -c 42 /app/answer.txt)\n"
            f"echo ${{got:-0}} > {REWARD}\n"
            'echo "{\\"reward\\": ${got:-0}}" > /logs/verifier/reward.json\n'
        },
        ["two-rewards"],
        "the solution raises two-rewards: ",
    ),
}
"""What is changed in a new task, the problems that are found, and what is printed about them."""


def make(directory: Path, changes: Mapping[str, str]) -> Path:
    write(directory, {**render_example(), **changes})
    return directory


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where trials are kept that show a problem."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.mark.sandbox
def test_a_step_that_could_not_begin_is_named_although_the_others_count(proctor: Proctor) -> None:
    ran = proctor("task", "try", TASKS / "multistep" / "ms-setup-fail", "-k", "1")
    assert ran.code == 1
    assert "\noracle-errored: the solution passes although an exception ended it early\n" in ran.out
    assert "    step two: RuntimeError\n" in ran.out


def read(out: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.mark.sandbox
@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named_with_the_output_that_shows_it(
    tmp_path: Path, proctor: Proctor, name: str
) -> None:
    changes, problems, shown = CASES[name]
    task = make(tmp_path / "task", changes)
    ran = proctor("task", "try", task, "-k", "1")
    assert ran.code == 1
    assert ran.out.startswith(f"{task}: {len(problems)} problem")
    assert [line.split(":")[0] for line in ran.out.splitlines() if line[:1].isalpha()][
        : len(problems)
    ] == problems
    assert shown in ran.out
    (kept,) = [line[6:] for line in ran.out.splitlines() if line.startswith("  see ")]
    assert Path(kept).exists()
    assert not Path(os.environ["PROCTOR_LEDGER"]).exists()


@pytest.mark.sandbox
def test_a_misspelt_key_is_named_once(tmp_path: Path, proctor: Proctor) -> None:
    config = str(render_example()["task.toml"]) + "\n[metadata]\n[solution]\nenvv = {}\n"
    ran = proctor("task", "try", make(tmp_path / "task", {"task.toml": config}), "-k", "1")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("solution.envv is not a key that harbor knows") == 1


@pytest.mark.sandbox
def test_a_task_without_problems_leaves_nothing(
    tmp_path: Path, proctor: Proctor, temporary: Path
) -> None:
    task = make(tmp_path / "task", {})
    ran = proctor("task", "try", task, "-k", "1")
    assert ran.code == 0
    assert ran.out.startswith(
        f"{task}: no problem found\n"
        "  oracle  1 of 1 attempt passed (1)\n"
        "  nop     0 of 1 attempt passed (0)\n"
        "\n"
        "note: base-substituted: The Dockerfile is FROM "
    )
    assert ran.out.count("\n") == 5
    assert list(temporary.iterdir()) == []


@pytest.mark.sandbox
def test_tests_that_disagree_with_themselves_are_told_from_a_solution_that_does(
    tmp_path: Path, proctor: Proctor
) -> None:
    # Two verifications cannot start in the same microsecond.
    random = f"#!/bin/bash\necho 0.$(date +%N) > {REWARD}\n"
    flaky = make(tmp_path / "flaky", {"tests/test.sh": random})
    found = read(proctor("task", "try", flaky, "-k", "1", "--json").out)
    assert [each["code"] for each in found["problems"]] == ["tests-flaky", "oracle-failed"]
    assert found["verify_again"]["tasks"][0]["n_differing"] == 2


@pytest.mark.sandbox
def test_trials_are_kept_where_they_are_asked_for(tmp_path: Path, proctor: Proctor) -> None:
    task, kept = make(tmp_path / "task", {}), tmp_path / "kept"
    assert proctor("task", "try", task, "-k", "1", "-o", kept).code == 0
    assert (kept / "try" / "result.json").exists()
    again = proctor("task", "try", task, "-k", "1", "-o", kept)
    assert (again.code, again.out) == (2, "")
    assert f"{kept}: exists and is not overwritten" in again.err


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"task.toml": "[agent"}, "config-not-toml", "task.toml is not TOML: "),
        ({"task.toml": "[agent]\ntimeout_sec = 'x'\n"}, "config-bad-value", "agent.timeout_sec"),
        ({"instruction.md": None}, "missing-instruction", "instruction.md"),
        ({"tests/test.sh": None}, "missing-test", "no tests/test.sh; "),
    ],
)
def test_an_invalid_task_is_not_run(
    tmp_path: Path, proctor: Proctor, changes: dict[str, str | None], code: str, message: str
) -> None:
    task = make(tmp_path / "task", {name: text for name, text in changes.items() if text})
    for name, text in changes.items():
        if text is None:
            (task / name).unlink()
    ran = proctor("task", "try", task)
    assert ran.code == 1
    assert f"\n{code}: " in ran.out
    assert message in ran.out
    found = read(proctor("task", "try", task, "--json").out)
    assert (found["is_fine"], found["agents"]) == (False, {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such directory; expected a task; "),
        (["."], ".: no task.toml in it; expected one task, such as task\n"),
        (["task/tests"], "task/tests: no task.toml in it; expected one task; `proctor task new "),
        (["task", "-k", "0"], "'-k'"),
        (["task", "-e", "moon"], "'sandbox', 'docker'"),
        (["task", "-e", "docker", "--base", "host"], "--base requires --env sandbox"),
    ],
)
def test_wrong_use_is_refused(
    tmp_path: Path,
    proctor: Proctor,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "task", {})
    ran = proctor("task", "try", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_a_variable_of_the_host_needs_consent(tmp_path: Path, proctor: Proctor) -> None:
    wants = '[environment.env]\nKEY = "${HOME}"\n'
    task = make(tmp_path / "task", {"task.toml": wants})
    ran = proctor("task", "try", task)
    assert (ran.code, ran.out) == (2, "")
    assert "pass --yes to allow them" in ran.err
