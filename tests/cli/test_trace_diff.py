"""`proctor trace diff`: for people at any width, for programs, and for what cannot be compared."""

import json
from pathlib import Path

import pytest

from proctor.traces.entry import OUTPUT_FILE, OUTPUT_FORMAT
from tests.cli.programs import Proctor
from tests.cli.test_show_steps import call, result, rows_of
from tests.ledger.trials import open_ledger, seal_files
from tests.task.trees import JOBS

TOLD = {"step": 0, "role": "user", "content": "Make the tests pass."}
A = [TOLD, call(1, "ls"), result(1, "app.py"), call(2, "pytest  -q"), result(2, "1 failed", 1)]
A += [call(3, "sed -i s/1/2/ app.py"), result(3, "")]
B = [TOLD, call(1, "ls"), result(1, "app.py"), call(2, "pytest -q")]
B += [result(2, "pytest: command \x1b[31mnot found", 127), call(3, "pip install pytest")]


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, rows in (("a.jsonl", A), ("b.jsonl", B)):
        (tmp_path / name).write_text(rows_of(*rows))
    return tmp_path


@pytest.mark.usefixtures("traces")
def test_it_names_where_they_part_and_who_was_first(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = proctor("trace", "diff", "a.jsonl", "b.jsonl")
    assert ran.code == 0
    assert ran.out.splitlines()[:16] == [
        "A  a.jsonl: 3 actions",
        "B  b.jsonl: 3 actions",
        "",
        "The first 2 actions are the same; the environment's answer differs first.",
        "",
        "First different answer, to action 2:",
        "  A:",
        "    step 2  bash  exit 1",
        "    pytest  -q",
        "    answer:",
        "    1 failed",
        "  B:",
        "    step 2  bash  exit 127",
        "    pytest -q",
        "    answer:",
        "    pytest: command \\x1b[31mnot found",
    ]
    assert "In all: 2 the same (1 answered differently), 1 only in A, 1 only in B." in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.usefixtures("traces")
def test_a_wide_screen_has_both_beside_one_another(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = proctor("trace", "diff", "a.jsonl", "b.jsonl").out.splitlines()
    beside = next(line for line in lines if "sed -i" in line)
    assert beside.index(" | ") == next(line for line in lines if " | B:" in line).index(" | ")
    assert beside.endswith(" | pip install pytest")


@pytest.mark.usefixtures("traces")
def test_as_json_it_is_one_document(proctor: Proctor) -> None:
    document = json.loads(proctor("trace", "diff", "a.jsonl", "b.jsonl", "--json").out)
    assert (document["first"], document["prefix"]) == ("environment", 2)
    assert document["answer"]["b"]["exit_code"] == 127
    assert document["action"]["a"]["command"] == "sed -i s/1/2/ app.py"
    assert document["told_the_same"] is True
    assert "duration" in document["not_counted_in_answers"]


def test_sealed_trials_and_other_kinds_can_be_compared(
    proctor: Proctor, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_LEDGER", str(traces / "ledger"))
    with open_ledger(traces) as ledger:
        seal_files(ledger, "one", {"agent/trajectory.jsonl": rows_of(*A).encode()})
    out = proctor("trace", "diff", "one", "a.jsonl").out
    assert "All actions are the same, and so are the answers." in out
    (trial,) = sorted((JOBS / "16-agent-nonzero").glob("pass-simple__*"))
    out = proctor("trace", "diff", trial, "one").out
    assert "The two started with different inputs." in out


def write_output(trial: Path, *texts: str, code: int | None = None) -> Path:
    """What the commands of an agent printed, as a run records it."""
    path = trial / "agent" / OUTPUT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    (trial / "config.json").touch()  # by which it is recognised as a trial
    rows: list[object] = [{"version": 1, "format": OUTPUT_FORMAT}]
    rows += [{"role": "output", "step": 0, "stdout": text} for text in texts]
    rows += [] if code is None else [{"role": "output", "step": 0, "exit_code": code}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return trial


def test_outputs_are_compared_line_by_line(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    # The same lines, in other pieces, and with another duration.
    write_output(tmp_path / "one", "buil", "ding\ntook 0.12s\nok\n", "done", code=0)
    write_output(tmp_path / "two", "building\ntook 3.4s\n", "not ok\ndone", code=1)
    ran = proctor("trace", "diff", "one", "two")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "A  one: 5 lines of recorded output",
        "B  two: 5 lines of recorded output",
        "",
        "The first 2 lines of the output are the same; then it differs.",
        "",
        "First different line, number 3:",
        "  A:",
        "    line 3  output",
        "    ok",
        "  B:",
        "    line 3  output",
        "    not ok",
        "",
        "In all: 3 the same, 2 only in A, 2 only in B.",
        "  only A     1  A line 3  output ok",
        "  only B     1  B line 3  output not ok",
        "  same       1  A line 4, B line 4  output done",
        "  only A     1  A line 5  exit 0",
        "  only B     1  B line 5  exit 1",
    ]
    document = json.loads(proctor("trace", "diff", "one", "two", "--json").out)
    assert document["a"] == {
        "thing": "one", "file": "agent/proctor-output.jsonl", "part": "", "kind": "command output",
    }  # fmt: skip
    out = proctor("trace", "diff", "one", "one").out
    assert "All lines of the output are the same." in out


def test_a_trace_and_an_output_are_compared_by_what_both_printed(
    proctor: Proctor, traces: Path
) -> None:
    write_output(traces / "one", "building\n", "passed\n")
    write_output(traces / "two", "compiling\n")
    (traces / "two" / "agent" / "trajectory.jsonl").write_text(rows_of(*A))
    ran = proctor("trace", "diff", "one", "two")
    assert (ran.code, ran.err) == (0, "")
    assert "The output differs from its first line." in ran.out
    (traces / "two" / "agent" / OUTPUT_FILE).unlink()
    ran = proctor("trace", "diff", "one", "two")
    assert (ran.code, ran.out) == (2, "")
    assert "two: has a trace but no recorded output" in ran.err


@pytest.mark.parametrize(
    ("things", "sentence"),
    [
        (["a.jsonl", "missing"], "missing: there is no such file"),
        ([JOBS / "42-config-multi", "a.jsonl"], "48 trials; name one, such as"),
        (["empty.jsonl", "a.jsonl"], "empty.jsonl: has no trace"),
        (["a.jsonl", "b.jsonl", "--part", "x"], "a.jsonl: no part 'x'; it has no parts"),
    ],
)
def test_what_cannot_be_compared_is_said(
    proctor: Proctor,
    traces: Path,
    monkeypatch: pytest.MonkeyPatch,
    things: list[object],
    sentence: str,
) -> None:
    monkeypatch.delenv("PROCTOR_LEDGER", raising=False)
    (traces / "empty.jsonl").write_text("")
    ran = proctor("trace", "diff", *things)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
