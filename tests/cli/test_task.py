"""`proctor task digest`: what pins a task or a dataset to its bytes."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.task.trees import TASKS, make_task, write

SIMPLE = TASKS / "binary" / "pass-simple"
CHECKSUM = "d2c82aec6f4b899073e9b4f7578efe2c3612f497ecbac1df64b69feb1fb2b7dd"
LOCKED = "9efa48a40a21231b64bb9c454e151ace79ab536e2ddc9b0711cc17e42a417bc4"


def test_a_task_has_three_digests(proctor: Proctor) -> None:
    ran = proctor("task", "digest", SIMPLE)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "pass-simple, 5 files, 378 B",
        f"  task_checksum  {CHECKSUM}",
        f"  lock digest    sha256:{LOCKED}",
        f"  dataset v1     {LOCKED}",
    ]


def test_files_are_listed_when_asked_for(proctor: Proctor) -> None:
    lines = proctor("task", "digest", SIMPLE, "--files").out.splitlines()[4:]
    listed = {line.split()[2]: line.split()[0] for line in lines}
    assert listed == {
        path.relative_to(SIMPLE).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in SIMPLE.rglob("*")
        if path.is_file()
    }


def test_a_dataset_has_a_row_for_every_task_and_a_digest(proctor: Proctor) -> None:
    ran = proctor("task", "digest", TASKS / "partial")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "partial, 2 tasks"
    headings = "task files bytes task_checksum lock digest dataset v1"
    assert " ".join(lines[1].split()) == headings
    assert [line.split()[0] for line in lines[2:4]] == ["ok", "unknown-field"]
    assert lines[2].split()[1:] == ["5", "378", CHECKSUM, f"sha256:{LOCKED}", LOCKED]
    assert [line.split(": ")[0] for line in lines[4:7]] == ["bad-toml", "bad-type", "no-tests"]
    tasks = sorted((line.split()[0], line.split()[-1]) for line in lines[2:4])
    digest = hashlib.sha256("".join(f"{a}\0{b}\n" for a, b in tasks).encode()).hexdigest()
    assert lines[7:] == [f"dataset digest v1  {digest}"]


def test_a_dataset_lists_its_files_task_by_task(proctor: Proctor) -> None:
    out = proctor("task", "digest", TASKS / "binary", "--files").out
    assert out.count("tests/test.sh") == 3
    assert out.count("task_checksum") == 3


def test_a_script_gets_everything(proctor: Proctor) -> None:
    ran = proctor("task", "digest", SIMPLE, TASKS / "partial", "--json")
    task, dataset = json.loads(ran.out)["digests"]
    assert (task["kind"], dataset["kind"]) == ("task", "dataset")
    assert task["task_checksum"] == CHECKSUM
    assert task["lock_digest"] == f"sha256:{LOCKED}"
    assert (task["n_files"], task["n_bytes"], task["faults"]) == (5, 378, [])
    assert task["files"][0]["path"] == "environment/Dockerfile"
    assert all(file["in_lock_digest"] for file in task["files"])
    assert [one["name"] for one in dataset["tasks"]] == ["ok", "unknown-field"]
    assert dataset["skipped"][0]["name"] == "bad-toml"
    assert dataset["skipped"][0]["reasons"][0]["code"] == "config-not-toml"


def test_a_task_that_harbor_does_not_take_has_digests_and_says_so(proctor: Proctor) -> None:
    ran = proctor("task", "digest", TASKS / "partial" / "no-tests")
    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith("  harbor rejects it: no tests/test.sh; ")


def test_several_paths_are_kept_apart(proctor: Proctor) -> None:
    out = proctor("task", "digest", SIMPLE, SIMPLE).out
    first, _, second = out.partition("\n\n")
    assert first + "\n" == second


def test_control_characters_in_names_are_spelled_out(proctor: Proctor, tmp_path: Path) -> None:
    make_task(tmp_path / "set" / "red\x1b[31m")
    for arguments in (["set/red\x1b[31m", "--files"], ["set"]):
        out = proctor("task", "digest", tmp_path / arguments[0], *arguments[1:]).out
        assert "\x1b" not in out
        assert "red\\x1b[31m" in out


@pytest.mark.parametrize(
    ("files", "path", "sentence"),
    [
        ({}, "gone", "does not exist; expected a task directory or a dataset of them"),
        ({"file": ""}, "file", "not a directory; expected a task directory or a dataset of them"),
        ({"set/a": ""}, "set", "no task.toml; expected a task directory or a dataset of them"),
        ({"set/a/b": ""}, "set", "no task.toml, neither here nor in its 1 directories; expected"),
    ],
)
def test_what_is_neither_task_nor_dataset_is_a_sentence(
    proctor: Proctor, tmp_path: Path, files: dict[str, str], path: str, sentence: str
) -> None:
    write(tmp_path, files)
    ran = proctor("task", "digest", tmp_path / path)
    assert (ran.code, ran.out) == (2, "")
    assert f"{path}: {sentence}" in ran.err


def test_a_task_that_cannot_be_hashed_is_a_sentence(proctor: Proctor, tmp_path: Path) -> None:
    make_task(tmp_path)
    (tmp_path / "tests" / "loop").symlink_to("..")
    ran = proctor("task", "digest", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "its links form a cycle" in ran.err
