"""`proctor show` of trials and of the steps somebody looks for: by number, error, tool, text."""

import json
import shutil
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.cli.showing.options import Selection
from proctor.cli.showing.text import fold, render_entry
from proctor.cli.showing.trace import Source, View, render_trace
from proctor.digest import sha256_hex
from proctor.traces.entry import Entry, TraceKind
from tests.cli.programs import Proctor, Ran, run_child
from tests.examples import examples
from tests.ledger.ledgers import artifact_path
from tests.ledger.trials import open_ledger, seal_files
from tests.task.trees import JOBS


def call(step: int, command: str, tool: str = "bash") -> dict[str, object]:
    return {"step": step, "role": "tool_call", "tool_name": tool, "command": command}


def result(step: int, stdout: str, code: int | None = 0, tool: str = "bash") -> dict[str, object]:
    row = {"step": step, "role": "tool_result", "tool_name": tool, "stdout": stdout}
    return row if code is None else {**row, "exit_code": code}


ROWS = [
    {"step": 0, "role": "user", "content": "Make it work."},
    call(1, "ls"),
    result(1, "app.py"),
    call(2, "pytest"),
    result(2, "1 failed", 1),
    call(3, "edit", "editor"),
    result(3, "Traceback (most recent call last)", None, "editor"),
    call(4, "cat error.log"),
    result(4, "Traceback (most recent call last)", 0),
    {"step": 5, "role": "assistant", "content": "It works. Really."},
]


def rows_of(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trajectory.jsonl"
    path.write_text(rows_of(*ROWS))
    return path


def steps_in(ran: Ran) -> list[int]:
    assert ran.code == 0
    heads = [line.split() for line in ran.out.splitlines() if line.startswith("step ")]
    return list(dict.fromkeys(int(head[1]) for head in heads))


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (["--step", "2"], [2]),
        (["--step", "2-4"], [2, 3, 4]),
        (["--step", "4-"], [4, 5]),
        (["--errors"], [2, 3]),
        (["--tool", "editor"], [3]),
        (["--grep", "Traceback"], [3, 4]),
        (["--grep", "(?i)it WORKS"], [5]),
        (["--errors", "--tool", "bash"], [2]),
        (["--errors", "--grep", "Traceback", "--step", "1-9"], [3]),
    ],
)
def test_only_steps_that_fit_are_shown(
    proctor: Proctor, trace: Path, options: list[str], steps: list[int]
) -> None:
    assert steps_in(proctor("show", trace, *options)) == steps
    document = json.loads(proctor("show", trace, *options, "--json").out)
    assert list(dict.fromkeys(entry["step"] for entry in document["entries"])) == steps


def test_a_step_that_fits_is_shown_whole_and_says_why(proctor: Proctor, trace: Path) -> None:
    out = proctor("show", trace, "--errors").out
    assert "step 2  tool_call  bash\n    pytest\nstep 2  tool_result  bash  exit 1\n" in out
    assert "step 3  tool_result  editor  error (text)\n" in out


@pytest.mark.parametrize("options", [["--step", "9"], ["--grep", "nowhere"], ["--tool", "x"]])
def test_where_nothing_fits_that_is_said(proctor: Proctor, trace: Path, options: list[str]) -> None:
    ran = proctor("show", trace, *options)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"proctor: {trace}: no step matches\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--step", "x"], "'x' is not a step; expected a number or a range such as 3-7"),
        (["--step", "7-3"], "'7-3' ends before it begins"),
        (["--step=-1"], "'-1' is not a step"),
        (["--grep", "("], "'(' is not a regular expression: missing )"),
        (["--grep", "a{999999999999}"], "is not a regular expression"),
    ],
)
def test_what_cannot_be_looked_for_is_said(
    proctor: Proctor, trace: Path, options: list[str], sentence: str
) -> None:
    ran = proctor("show", trace, *options)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err


def test_an_expression_that_would_never_end_is_given_up(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.cli.showing.options._PATIENCE_SECONDS", 0.2)
    path = tmp_path / "trajectory.jsonl"
    path.write_text(rows_of(call(7, "a" * 60 + "b")))
    ran = proctor("show", path, "--grep", "(a+)+$")
    assert ran.code == 2
    assert "step 7 took longer than 0.2 seconds; use a simpler expression" in ran.err


def test_lines_that_cannot_be_read_are_counted(proctor: Proctor, trace: Path) -> None:
    with trace.open("a") as file:
        file.write('garbage\n{"step": 6, "role": "user", "content": "x", "more": 1}\n')
    out = proctor("show", trace, "--grep", "^x$").out.splitlines()
    assert out == [
        '[line 12: unknown key "more"; not part of the format]',
        "step 6  user",
        "    x",
        f"[{trace}: 1 line could not be read; `proctor check` says why]",
    ]


def test_a_conversation_has_a_step_for_each_turn_of_the_assistant(
    proctor: Proctor, tmp_path: Path
) -> None:
    path = tmp_path / "conversation.jsonl"
    said = [("user", "go"), ("assistant", "one"), ("user", "more"), ("assistant", "two")]
    path.write_text(rows_of(*({"role": role, "content": text} for role, text in said)))
    assert "line 4  assistant  (step 2)\n" in proctor("show", path).out
    out = proctor("show", path, "--step", "2").out
    assert out == "step 2  assistant\n    two\n"
    assert steps_in(proctor("show", path, "--grep", "go|more")) == [0, 1]


# Trials


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    (original,) = sorted((JOBS / "16-agent-nonzero").glob("pass-simple__*"))
    copy = tmp_path / "job" / original.name
    shutil.copytree(original, copy)
    return copy


def test_a_trial_is_its_record_and_then_its_trace(proctor: Proctor, trial: Path) -> None:
    ran = proctor("show", trial)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].startswith("errored: NonZeroAgentExitCodeError: ")
    assert f"{trial.name}, partial, of experiment job" in lines
    title = lines.index("agent/trajectory.json (ATIF trajectory)")
    assert lines[title - 1] == ""
    assert lines[title + 1].startswith("step 0  ")
    only = proctor("show", trial, "--step", "1").out.splitlines()
    assert only[1] == "agent/trajectory.json (ATIF trajectory)"
    document = json.loads(proctor("show", trial, "--json").out)
    assert (document["thing"], document["record"]["trial_id"]) == ("trial", trial.name)
    assert document["traces"][0]["entries"]


def test_the_parts_of_a_trial_are_shown_in_turn_or_by_name(proctor: Proctor, trial: Path) -> None:
    shutil.rmtree(trial / "agent")
    for part in ("one", "two"):
        (trial / "steps" / part / "agent").mkdir(parents=True)
        (trial / "steps" / part / "agent" / "trajectory.jsonl").write_text(rows_of(call(1, part)))
    out = proctor("show", trial, "--step", "1").out
    assert out.index("part one, ") < out.index("    one") < out.index("part two, ")
    out = proctor("show", trial, "--step", "1", "--part", "two").out
    assert "    two\n" in out
    assert "    one\n" not in out
    ran = proctor("show", trial, "--part", "three")
    assert (ran.code, "no part 'three'; its parts are one, two" in ran.err) == (2, True)


def test_a_directory_of_jobs_has_its_jobs_named(proctor: Proctor) -> None:
    ran = proctor("show", JOBS)
    assert (ran.code, ran.out) == (2, "")
    assert "expected a trace, a trial, a trial record or a job, such as " in ran.err
    assert " jobs in all)" in ran.err


def test_a_trial_without_a_trace_is_said_to_have_none(proctor: Proctor, trial: Path) -> None:
    shutil.rmtree(trial / "agent")
    assert proctor("show", trial).code == 0
    ran = proctor("show", trial, "--errors")
    assert (ran.code, ran.err) == (0, f"proctor: {trial}: has no trace\n")


def test_a_sealed_trial_shows_its_trace_and_its_steps(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    with open_ledger(tmp_path) as ledger:
        data = rows_of(*ROWS).encode()
        seal_files(ledger, "third", {"agent/trajectory.jsonl": data})
        path = artifact_path(ledger, sha256_hex(data))
    out = proctor("show", "third").out
    assert out.startswith("third, ")
    assert "\n\nagent/trajectory.jsonl (trajectory)\nstep 0  user\n" in out
    assert steps_in(proctor("show", "third", "--errors")) == [2, 3]
    (found,) = json.loads(proctor("show", "third", "--step", "2", "--json").out)["traces"]
    assert [entry["role"] for entry in found["entries"]] == ["tool_call", "tool_result"]
    path.write_bytes(path.read_bytes()[:-1])
    ran = run_child("show", "third", "--step", "2")
    assert (ran.code, ran.out) == (1, "")


def test_a_step_of_a_large_sealed_trajectory_is_found_in_a_part_of_it(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    rows = [call(step, f"{step} {'x' * 5000}") for step in range(2000)]
    with open_ledger(tmp_path) as ledger:
        seal_files(ledger, "big", {"agent/trajectory.jsonl": rows_of(*rows).encode()})
    for _ in range(2):
        assert steps_in(proctor("show", "big", "--step", "1998-")) == [1998, 1999]
        assert len(list((tmp_path / "cache" / "steps").iterdir())) == 1
    (tmp_path / "cache").chmod(0o777)
    assert steps_in(proctor("show", "big", "--step", "3")) == [3]


# Legible


def test_long_outputs_are_folded_to_their_first_and_last_lines() -> None:
    lines = fold("\n".join(f"line {at}" for at in range(1, 2001)))
    assert lines[0] == "line 1"
    assert lines[20] == "… 1,968 lines folded; --full shows them"
    assert lines[-1] == "line 2000"
    assert len(lines) == 33
    assert len(fold("\n".join(map(str, range(2000))), None)) == 2000


def test_long_lines_among_others_are_cut_and_nothing_is_lost_unsaid() -> None:
    lines = fold("a" * 5000 + "\nmiddle\n" + "b" * 5000)
    assert lines == [
        "a" * 1000,
        "… 4,000 more characters",
        "… 1 line folded; --full shows them",
        "b" * 1000,
        "… 4,000 more characters",
    ]


def test_no_line_is_wider_than_the_screen_in_any_script() -> None:
    entry = Entry(role="user", step=1, content="漢字" * 200 + "é" * 200 + "\t" * 30 + "x" * 300)
    for line in render_entry(entry, 80, longest=None):
        assert sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) <= 80


def test_media_are_named_and_not_dumped() -> None:
    image = "data:image/png;base64," + "iVBORw0KGgo" * 500
    entry = Entry(role="user", step=1, content=f"see {image} there", media=["a.png", "A" * 900])
    text = "\n".join(render_entry(entry, longest=None))
    assert "see [image/png, 5,522 characters, not shown] there" in text
    assert "    media: a.png\n    media: base64, 900 characters, not shown" in text
    assert "iVBORw0KGgo" not in text


def test_subagents_are_named_and_never_followed(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    refs = [{"trajectory_id": "me"}, {"trajectory_path": str(path)}]
    observed = {"results": [{"content": "done", "subagent_trajectory_ref": refs}]}
    step = {"step_id": 1, "source": "agent", "message": "go", "observation": observed}
    agent = {"name": "a", "version": "1"}
    document = {"schema_version": "ATIF-v1.7", "agent": agent, "steps": [step]}
    document["subagent_trajectories"] = [{**document, "trajectory_id": "me"}]
    path.write_text(json.dumps(document))
    ran = proctor("show", path)
    assert ran.code == 0
    assert "    subagent: trajectory_id me\n" in ran.out
    assert f"    subagent: trajectory_path {path}\n" in ran.out


hostile = st.text(
    st.sampled_from("\x1b\x07\x9b\x9d\x00\x7f\u202e\u2066\u200f\r\v\f\x85\u2028a\n\t]8;;[2J"),
    max_size=30,
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=hostile, step=st.sampled_from([None, (1, 1)]))
def test_no_control_character_gets_through_any_field(
    tmp_path: Path, text: str, step: tuple[int, int] | None
) -> None:
    keys = ("content", "tool_name", "command", "stdout", "stderr", text)
    row: dict[str, object] = dict.fromkeys(keys, text)
    row |= {"output_summary": text, "call_type": text, "timestamp": text, "media": [text]}
    nested = {text: [text, {text: text}], "atif": {"reasoning_content": text, text: text}}
    path = tmp_path / "trajectory.jsonl"
    told = {**row, "step": 1, "role": text, "arguments": nested, "metadata": nested}
    path.write_text(rows_of(told, {**row, "step": 1, "role": "tool_result"}, text))
    for width in (None, 80):
        view = View(Selection(step), width=width)
        source = Source(TraceKind.TRAJECTORY, str(path), f"{text}.jsonl")
        for line in render_trace(source, view):
            assert line.isprintable()


def test_the_errors_of_a_warm_up_are_none_as_in_summaries(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    warm = {**result(1, "no", 1), "call_type": "warmup"}
    path.write_text(rows_of(call(1, "true"), warm, call(2, "false"), result(2, "no", 1)))
    assert steps_in(proctor("show", path, "--errors")) == [2]
    (summed,) = json.loads(proctor("trace", "summary", path, "--json").out)["trials"]
    assert summed["trace"]["errors"]["total"] == 1
