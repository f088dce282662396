"""Short texts that would take a multiple of their size in memory: no command decodes them."""

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.errors import JobError, RecordError, TraceError
from proctor.harbor.documents import TRIAL
from proctor.json_values import has_more_values
from proctor.record.document import parse_document
from proctor.reward.read import read_score
from proctor.reward.score import Unscored
from proctor.traces.atif.read import load_atif
from proctor.traces.conversation import load_conversation
from proctor.traces.trajectory import load_trajectory, read_chunks, read_pieces, read_steps
from tests.cli.programs import command_line, environment

JOB = Path(__file__).parent.parent / "data" / "harbor" / "jobs" / "04-binary-scripted-k5"
HEAD = b'{"role":"user","step":1,"content":"hello"}\n'
TAIL = b'{"role":"user","step":3,"content":"bye"}\n'
WRAPS = {
    "agent/trajectory.jsonl": (
        HEAD + b'{"role":"user","step":2,"metadata":{"a":[',
        b"[]]}}\n" + TAIL,
    ),
    "agent/conversation.jsonl": (b'{"role":"user","content":"hello"}\n[', b"[]]\n"),
    "agent/trajectory.json": (
        b'{"schema_version":"ATIF-v1.5","session_id":"x","agent":{"name":"a","version":"1"},'
        b'"steps":[{"step_id":1,"source":"user","message":"hi"}],"extra":{"a":[',
        b"[]]}}",
    ),
    "verifier/reward.json": (b'{"reward":[', b"[]]}"),
    "record.json": (b'{"x":[', b"[]]}"),
    "config.json": (b'{"x":[', b"[]]}"),
    "result.json": (b"[", b"[]]"),
}


def write(path: Path, name: str, size: int) -> Path:
    """A file with so many bytes of empty lists in it."""
    before, after = WRAPS[name]
    file = path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        opened.write(before)
        opened.write(b"[]," * (size // 3))
        opened.write(after)
    return file


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"", 0),
        (b"[[],{}]", 4),
        (b'["a,b", "[[", "\\",[", "\\\\", 1]', 5),
        (b'"' + b"," * 600_000 + b'"', 0),
        (b'["' + b"\\" * 600_000 + b'", ' + b"1, " * 10 + b"2]", 12),
        (b'{"a": ' + b'"x,", "b": ' * 200_000 + b"1}", 200_001),
    ],
    ids=["nothing", "brackets", "escapes", "commas", "backslashes", "texts"],
)
def test_values_are_counted_outside_of_strings(text: bytes, count: int) -> None:
    assert not has_more_values(text, count)
    assert count == 0 or has_more_values(text, count - 1)


def test_a_line_of_many_values_is_stepped_over_and_the_rest_is_read(tmp_path: Path) -> None:
    path = str(write(tmp_path, "agent/trajectory.jsonl", 3_000_000))
    found = load_trajectory(path, salvage=True)
    assert [entry.content for entry in found.entries] == ["hello", "bye"]
    assert [(each.code, each.line) for each in found.diagnostics] == [("line-too-long", 2)]
    assert "with more than 1,000,000 values; it is not decoded" in found.diagnostics[0].message
    with pytest.raises(TraceError, match="more than 1,000,000 values"):
        list(read_chunks(path))
    pieces = list(read_pieces([(1, Path(path).read_bytes())]))
    assert [line for chunk in pieces for line in chunk.lines] == [1, 3]
    chunks = list(read_steps(path, 3, 3))
    assert [entry.content for chunk in chunks for entry in chunk.entries] == ["bye"]
    assert any("1,000,000 values" in each.message for one in chunks for each in one.diagnostics)


def test_no_reader_decodes_so_many_values(tmp_path: Path) -> None:
    conversation = load_conversation(
        str(write(tmp_path, "agent/conversation.jsonl", 3_000_000)), salvage=True
    )
    assert (len(conversation.turns), conversation.diagnostics[0].code) == (1, "line-too-long")
    with pytest.raises(TraceError, match="more than 4,000,000 JSON values"):
        load_atif(write(tmp_path, "agent/trajectory.json", 9_000_000))
    write(tmp_path, "verifier/reward.json", 3_000_000)
    score = read_score(str(tmp_path / "verifier"))
    assert isinstance(score, Unscored)
    assert score.error == "VerifierOutputParseError"
    with pytest.raises(RecordError, match="has more than 1,000,000 JSON values"):
        parse_document(write(tmp_path, "record.json", 3_000_000).read_bytes(), "record.json")


def test_items_of_a_line_that_are_no_objects_are_said_once(tmp_path: Path) -> None:
    path = write(tmp_path, "agent/conversation.jsonl", 300_000)
    found = load_conversation(str(path), salvage=True)
    assert [each.code for each in found.diagnostics] == ["not-an-object"]
    assert "(and 100,000 more in this line)" in found.diagnostics[0].message


def test_many_unknown_keys_make_a_short_sentence(tmp_path: Path) -> None:
    keys = ",".join(f'"k{number}":1' for number in range(20_000))
    (tmp_path / "trajectory.jsonl").write_text(f'{{"role":"user","step":1,{keys}}}\n')
    found = load_trajectory(str(tmp_path / "trajectory.jsonl"), salvage=True)
    assert len(found.entries) == 1
    assert found.diagnostics[0].message.startswith(
        'unknown key "k0", "k1", "k2", "k3", "k4" and more'
    )


def test_token_ids_of_a_result_cost_nothing_and_arguments_are_bounded(tmp_path: Path) -> None:
    trial = next(path for path in JOB.iterdir() if path.is_dir())
    document = json.loads((trial / "result.json").read_bytes())
    path = tmp_path / "result.json"
    document["agent_result"]["rollout_details"] = "IDS"
    many = b"[" + b"1," * 1_000_001 + b"1]"
    path.write_bytes(json.dumps(document).encode().replace(b'"IDS"', many))
    assert TRIAL.load(str(path)).trial_name == document["trial_name"]
    document["config"]["agent"]["kwargs"] = {"a": "IDS"}
    document["agent_result"]["rollout_details"] = None
    path.write_bytes(json.dumps(document).encode().replace(b'"IDS"', many))
    with pytest.raises(JobError, match="1,000,000 JSON values among the arguments"):
        TRIAL.load(str(path))


def make_job(directory: Path, name: str, size: int) -> tuple[Path, Path]:
    """A job of one trial with such a file, and the file."""
    job = directory / "job"
    shutil.copytree(JOB, job)
    trial, *others = sorted(path for path in job.iterdir() if path.is_dir())
    for other in others:
        shutil.rmtree(other)
    return job, write(trial, name, size)


def test_commands_stay_within_a_bound_of_memory(tmp_path: Path) -> None:
    """Half a gigabyte of addresses; undecoded it takes 24 MB, decoded more than a gigabyte."""
    job, _ = make_job(tmp_path, "agent/conversation.jsonl", 24_000_000)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (500 << 20, 500 << 20))

    ran = subprocess.run(
        command_line("trace", "summary", job), env=environment(), capture_output=True, timeout=50,
        preexec_fn=limit, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, b"")


MEASURE = """
import resource, subprocess, sys
ran = subprocess.run(sys.argv[1:], capture_output=True)
print(ran.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""


@pytest.mark.soak
@pytest.mark.parametrize("name", WRAPS)
def test_180_megabytes_of_empty_lists_cost_300_megabytes_and_10_seconds(
    tmp_path: Path, name: str
) -> None:
    job, file = make_job(tmp_path, name, 180_000_000)
    trial = next(path for path in job.iterdir() if path.is_dir())
    commands = [("show", trial), ("trace", "summary", job), ("report", job), ("audit", job)]
    commands += [("trace", "classify", job), ("check", file), ("show", file)]
    commands += [("search", "hello", job)]
    for command in commands:
        began = time.monotonic()
        line = [sys.executable, "-c", MEASURE, *command_line(*command)]
        told = subprocess.run(line, env=environment(), capture_output=True, check=True).stdout
        code, megabytes = map(int, told.split())
        assert code in (0, 1, 2, 3), command
        assert megabytes < 300, command
        assert time.monotonic() - began < 10, command
