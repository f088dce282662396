"""`proctor init` and `proctor task new`: what they write works, and they overwrite nothing."""

import json
import os
import shlex
from pathlib import Path

import pytest

from tests.cli.programs import Proctor

FILES = [
    "environment/Dockerfile",
    "instruction.md",
    "solution/solve.sh",
    "task.toml",
    "tests/test.sh",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with a ledger and a key of its own."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("PROCTOR_LEDGER")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return place


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def listed(directory: Path) -> list[str]:
    return sorted(
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    )


@pytest.mark.sandbox
def test_the_printed_commands_work_when_pasted(here: Path, proctor: Proctor) -> None:
    made = proctor("init")
    assert (made.code, made.err) == (0, "")
    example = sorted([*FILES, "environment/numbers.txt"])
    assert listed(here / "tasks") == [f"sum-numbers/{name}" for name in example]
    assert listed(here / "agent") == ["agent.py", "trajectory_writer.py"]
    checked, run, _ = [shlex.split(line) for line in made.out.splitlines() if line[:2] == "  "]
    tried = proctor(*checked[1:], "-k", "1", "--json")
    assert tried.code == 0, tried.out
    assert json.loads(tried.out)["agents"] == {
        "oracle": {"attempts": 1, "passed": 1, "rewards": [1.0]},
        "nop": {"attempts": 1, "passed": 0, "rewards": [0.0]},
    }
    ran = proctor(*run[1:], "-q")
    assert ran.code == 0
    assert "  mean  1\n" in ran.out
    assert "ledger: ledger: 1 sealed\n" in ran.out


def test_another_directory_is_made_and_entered_first(here: Path, proctor: Proctor) -> None:
    facts = json.loads(proctor("init", "my runs", "--json").out)
    assert facts["next_commands"][0] == "cd 'my runs'"
    assert facts["is_new_ledger"] is True
    assert names(here / "my runs") == ["agent", "ledger", "tasks"]


def test_a_ledger_of_the_environment_is_used(
    here: Path, proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_LEDGER", "elsewhere")
    assert "ledger  elsewhere: " in proctor("init").out
    assert names(here) == ["agent", "tasks"]


@pytest.mark.parametrize("name", ["tasks", "agent", "ledger"])
def test_nothing_is_overwritten_and_nothing_half_written(
    here: Path, proctor: Proctor, name: str
) -> None:
    (here / name).write_text("mine")
    ran = proctor("init")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"proctor: {name}: exists and is not overwritten; ")
    assert names(here) == [name]


def test_a_place_that_cannot_be_written_is_named(here: Path, proctor: Proctor) -> None:
    (here / "file").write_text("")
    ran = proctor("init", "file")
    sentence = "proctor: file: not a directory; expected one to write into\n"
    assert (ran.code, ran.err) == (2, sentence)


def test_a_new_task_is_valid_and_names_its_organisation(here: Path, proctor: Proctor) -> None:
    made = proctor("task", "new", "acme/fix-bug")
    assert made.code == 0
    assert listed(here / "tasks" / "fix-bug") == FILES
    assert made.out.splitlines()[-2:] == [
        "  proctor task try tasks/fix-bug",
        "  proctor task try tasks/fix-bug --shell",
    ]
    assert os.access(here / "tasks/fix-bug/tests/test.sh", os.X_OK)
    checked = json.loads(proctor("task", "digest", "tasks/fix-bug", "--json").out)
    (task,) = checked["digests"]
    assert (task["name"], task["faults"]) == ("acme/fix-bug", [])


@pytest.mark.sandbox
def test_a_new_task_has_its_name_and_passes_with_its_solution_only(
    here: Path, proctor: Proctor
) -> None:
    proctor("task", "new", "fix-bug")
    assert (here / "tasks/fix-bug/instruction.md").read_text().startswith("# fix-bug\n")
    assert "the task fix-bug" in (here / "tasks/fix-bug/task.toml").read_text()
    for name in ("environment/Dockerfile", "solution/solve.sh", "tests/test.sh"):
        assert "\n# Edit: " in "\n" + (here / "tasks/fix-bug" / name).read_text()
    tried = proctor("task", "try", "tasks/fix-bug", "-k", "1", "--json")
    assert tried.code == 0, tried.out
    agents = json.loads(tried.out)["agents"]
    assert (agents["oracle"]["rewards"], agents["nop"]["rewards"]) == ([1.0], [0.0])


def test_a_task_goes_where_it_is_asked_for(here: Path, proctor: Proctor) -> None:
    facts = json.loads(proctor("task", "new", "plain", "-o", "a/b", "--json").out)
    assert facts == {
        "task": "a/b/plain",
        "files": sorted(FILES, key=facts["files"].index),
        "next_commands": ["proctor task try a/b/plain", "proctor task try a/b/plain --shell"],
    }
    assert "[task]" not in (here / "a/b/plain/task.toml").read_text()


def test_a_task_that_exists_is_left_alone(here: Path, proctor: Proctor) -> None:
    proctor("task", "new", "one")
    (here / "tasks/one/task.toml").write_text("mine")
    ran = proctor("task", "new", "one")
    assert (ran.code, ran.out) == (2, "")
    assert "tasks/one: exists and is not overwritten" in ran.err
    assert (here / "tasks/one/task.toml").read_text() == "mine"
    assert names(here / "tasks") == ["one"]


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b/c", "a b", ".hidden", "a..b", "a/", "é"])
def test_a_name_that_no_task_can_have_is_refused(here: Path, proctor: Proctor, name: str) -> None:
    ran = proctor("task", "new", name)
    assert (ran.code, ran.out) == (2, "")
    assert "expected NAME or ORGANISATION/NAME" in ran.err
    assert names(here) == []
