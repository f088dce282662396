"""`proctor show`: a trace or a record as people read it, at any width, whatever is in it."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from tests.audit.directories import COPIED
from tests.cli.programs import Proctor, command_line, environment
from tests.record.samples import DATA, spelled, tree
from tests.task.trees import TASKS

ATIF = COPIED / "04-binary-scripted-k5" / "pass-simple__35oQqES" / "agent" / "trajectory.json"
HOSTILE = "\x1b[31mred\x07 \x9b2J \u202e\x00\x7f"
LINES = [
    {"version": 1, "format": "aec-bench-trajectory"},
    {"step": 0, "role": "user", "content": "Calculate.\nPlease."},
    {"step": 1, "role": "tool_call", "tool_name": "bash", "command": "y" * 150},
    {"step": 1, "role": "tool_result", "stdout": "z" * 5000, "exit_code": 0, "duration_ms": 1142},
    {"step": 2, "role": "assistant", "content": "Done."},
]


def write_lines(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "trajectory.jsonl", *LINES)


def show_on_terminal(path: Path, columns: int) -> str:
    """What a terminal of that width is sent."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command_line("show", path),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment(COLUMNS=str(columns)),
    ) as process:
        os.close(theirs)
        sent = bytearray()
        while piece := _read(ours):
            sent += piece
        os.close(ours)
        assert process.wait(timeout=60) == 0
    return sent.decode().replace("\r\n", "\n")


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # how a terminal ends whose other side is gone
        return b""


@pytest.mark.parametrize("columns", [80, 200])
def test_a_trace_is_broken_at_the_width_of_the_terminal(trace: Path, columns: int) -> None:
    lines = show_on_terminal(trace, columns).splitlines()
    assert max(map(len, lines)) == columns
    assert lines[:4] == [
        "aec-bench-trajectory, version 1",
        "step 0  user",
        "    Calculate.",
        "    Please.",
    ]
    command = "".join(line.strip() for line in lines if line.strip("y ") == "")
    assert command == "y" * 150
    assert "    … 3,000 more characters" in lines


@pytest.mark.parametrize("columns", [80, 200])
def test_a_record_is_shown_at_any_width(columns: int) -> None:
    text = show_on_terminal(DATA / "g1-complete.json", columns)
    assert text.startswith("trial-001, complete, of experiment experiment-001\n")
    assert "\n  reward       1\n" in text


def test_a_pipe_has_no_width(proctor: Proctor, trace: Path) -> None:
    ran = proctor("show", trace)
    assert ran.code == 0
    assert f"    {'y' * 150}\n" in ran.out
    assert "step 1  tool_result  exit 0  1,142 ms\n" in ran.out


def test_whole_texts_when_asked(proctor: Proctor, trace: Path) -> None:
    assert f"    {'z' * 2000}\n    … 3,000 more characters\n" in proctor("show", trace).out
    assert f"    {'z' * 5000}\n" in proctor("show", trace, "--full").out


@pytest.mark.parametrize(("step", "shown"), [(0, ["user"]), (2, ["assistant"]), (9, [])])
def test_one_step_when_asked(proctor: Proctor, trace: Path, step: int, shown: list[str]) -> None:
    ran = proctor("show", trace, "--step", step)
    assert ran.code == 0
    heads = [line for line in ran.out.splitlines() if line.startswith("step ")]
    assert heads == [f"step {step}  {role}" for role in shown]
    document = json.loads(proctor("show", trace, "--step", step, "--json").out)
    assert [entry["role"] for entry in document["entries"]] == shown


def test_atif_is_shown_by_its_steps(proctor: Proctor) -> None:
    ran = proctor("show", ATIF)
    assert ran.code == 0
    assert "Write 42 to /app/answer.txt" in ran.out
    assert "    thinking: simple\n" in ran.out
    assert "tool_call  bash\n" in ran.out


def test_a_conversation_is_shown_by_its_lines(proctor: Proctor) -> None:
    path = TASKS.parent.parent / "conversations" / "openai.jsonl"
    ran = proctor("show", path)
    assert ran.code == 0
    assert "line 1  system\n" in ran.out
    assert "    call " in ran.out
    assert "    result" in ran.out
    document = json.loads(proctor("show", path, "--json").out)
    assert (document["thing"], len(document["turns"])) == ("conversation", 6)


def test_a_problem_stands_where_it_is(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    entry = '{"step": %d, "role": "user"}\n'
    path.write_text(entry % 1 + "5\n" + entry % 2 + '{"step": 3, "role": "user", "x": 1}\n{"st')
    ran = proctor("show", path)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "step 1  user",
        "[line 2: 5; expected a JSON object]",
        "step 2  user",
        '[line 4: unknown key "x"; not part of the format]',
        "step 3  user",
        "[line 5: the file ends inside a line, after 4 bytes of it]",
    ]
    document = json.loads(proctor("show", path, "--json").out)
    assert [found["line"] for found in document["diagnostics"]] == [2, 4, 5]


# Hostile text


def hostile_files(root: Path) -> list[Path]:
    """Every kind of thing with control characters wherever text can be."""
    name = HOSTILE.replace("\x00", "")
    entry = {"step": 1, "role": HOSTILE, "content": HOSTILE, "tool_name": HOSTILE}
    entry |= {"stdout": HOSTILE, "media": [HOSTILE], "metadata": {HOSTILE: HOSTILE}, HOSTILE: 1}
    trajectory = write_lines(
        root / f"{name}.jsonl", {"version": HOSTILE, "format": HOSTILE}, entry, HOSTILE
    )
    call = {"id": "c", "function": {"name": HOSTILE, "arguments": HOSTILE}}
    row = {"role": HOSTILE, "content": HOSTILE, "tool_calls": [call], HOSTILE: HOSTILE}
    conversation = write_lines(root / f"conversation{name}.jsonl", row, HOSTILE)
    step = {"step_id": HOSTILE, "source": HOSTILE, "message": HOSTILE, HOSTILE: 1}
    good = {"step_id": 1, "source": "agent", "message": HOSTILE, "reasoning_content": HOSTILE}
    atif = write_lines(
        root / f"{name}.json", {"agent": {"name": HOSTILE}, "steps": [good, step], HOSTILE: 1}
    )
    changes = {"agent.model": HOSTILE, "inputs.instruction": HOSTILE, "task.task_id": HOSTILE}
    record = root / f"record{name}.json"
    record.write_bytes(spelled(tree(**changes, **{HOSTILE: HOSTILE})))
    return [trajectory, conversation, atif, record]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_no_control_character_reaches_the_terminal(
    proctor: Proctor, tmp_path: Path, options: tuple[str, ...]
) -> None:
    for path in hostile_files(tmp_path):
        for command in ("show", "check"):
            ran = proctor(command, path, *options)
            assert ran.code in (0, 1)
            assert "red" in ran.out
            raw = (ran.out + ran.err).replace("\n", "")
            assert raw.isprintable(), (command, path, {c for c in raw if not c.isprintable()})


# Records


@pytest.mark.parametrize("name", ["g1-complete.json", "g1x.json", "g1-complete-hollow.json"])
def test_raw_gives_the_bytes_as_they_are_stored(name: str) -> None:
    done = subprocess.run(
        command_line("show", "--raw", DATA / name),
        env=environment(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert sha256_hex(done.stdout) == sha256_hex((DATA / name).read_bytes())


def test_a_record_as_one_document(proctor: Proctor) -> None:
    document = json.loads(proctor("show", "--json", DATA / "g1-partial.json").out)
    assert (document["thing"], document["generation"]) == ("trial record", "G1")
    assert document["record"]["trial_id"] == "trial-002"
    assert document["missing"]


def test_what_is_not_known_of_a_record_is_called_so(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(spelled(tree(**{"evaluation.reward": None, "cost": None})))
    out = proctor("show", path).out
    assert "reward       not scored\n" in out
    assert "cost         unknown\n" in out


def test_a_hollow_record_has_its_problem_said(proctor: Proctor) -> None:
    assert "  problem: is marked complete, but " in (
        proctor("show", DATA / "g1-complete-hollow.json").out
    )


# What does not fit


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("trace", ["--raw"]),
        ("trace", ["--full", "--json"]),
        ("record", ["--step", 1]),
        ("record", ["--full"]),
        ("record", ["--raw", "--json"]),
        ("record", ["--errors"]),
        ("record", ["--grep", "x"]),
        ("conversation", ["--part", "x"]),
    ],
)
def test_options_that_do_not_fit_are_refused(
    proctor: Proctor, trace: Path, name: str, options: list[object]
) -> None:
    row = write_lines(trace.with_name("conversation.jsonl"), {"role": "user", "content": "x"})
    paths = {"trace": trace, "record": DATA / "g1x.json", "conversation": row}
    ran = proctor("show", paths[name], *options)
    assert (ran.code, ran.out) == (2, "")
    assert re.search(f"{options[0]} (cannot be combined with|cannot be used with) ", ran.err)


def test_what_cannot_be_shown_is_named(proctor: Proctor) -> None:
    ran = proctor("show", TASKS / "binary")
    said = "a dataset; expected a trace, a trial, a trial record or a job"
    assert (ran.code, ran.out, ran.err) == (2, "", f"proctor: {TASKS / 'binary'}: {said}\n")


@pytest.mark.parametrize("arguments", [("show",), ("show", "--json"), ("check",)])
def test_a_reader_that_has_gone_is_in_its_right(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = write_lines(tmp_path / "trajectory.jsonl", *LINES * 2000)
    check_gone(*arguments, path)


def test_a_reader_of_raw_bytes_that_has_gone_is_in_its_right(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(spelled(tree(**{"inputs.instruction": "x" * 1_000_000})))
    check_gone("show", "--raw", path)


def check_gone(*arguments: object) -> None:
    with subprocess.Popen(
        command_line(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) in (0, 1)


@pytest.mark.parametrize(
    ("trial", "first"),
    [
        (
            "06-errors-oracle-k1/build-fail__dVG2ioy",
            [
                "errored: RuntimeError: Build failed: RUN echo about-to-fail && exit 7",
                "    about-to-fail",
                "    whole text: {trial}/exception.txt",
            ],
        ),
        (
            "01-binary-oracle-k1/oracle-wrong__2j385Vz",
            [
                "verifier says: checked",
                "    to stderr",
                "    whole text: {trial}/verifier/test-stdout.txt",
            ],
        ),
    ],
)
def test_what_failed_comes_first(proctor: Proctor, trial: str, first: list[str]) -> None:
    """A reader who opens a failed trial wants to know why, before anything else."""
    place = COPIED / trial
    shown = proctor("show", place)
    lines = [line.format(trial=place) for line in first]
    assert shown.out.splitlines()[: len(lines)] == lines
    summary = proctor("trace", "summary", place).out
    assert lines[0].partition(": ")[2] in summary
    failures = json.loads(proctor("show", place, "--json").out)["failures"]
    found = failures["exceptions"] + failures["tests"]
    assert [lines[-1].endswith(each["file"]) for each in found] == [True]


def test_a_sealed_trial_says_how_to_print_the_whole_text(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence is read with `show --evidence`; the printed command works as it is."""
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    trial = COPIED / "01-binary-oracle-k1" / "oracle-wrong__2j385Vz"
    assert proctor("ledger", "init", "--ledger", tmp_path / "ledger").code == 0
    assert proctor("import", "harbor", trial.parent, "--ledger", tmp_path / "ledger").code == 0
    shown = proctor("show", trial.name, "--no-pager").out.splitlines()
    assert shown[:2] == ["verifier says: checked", "    to stderr"]
    command = shown[2].removeprefix("    whole text: proctor ").split()
    assert proctor(*command).out == "checked\nto stderr\n"
