"""What the writer puts into a file, to the letter."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.trace_reading import read_as_peer
from proctor.traces import entry as trajectory_entry
from proctor.traces import writer as module
from proctor.traces.trajectory import load_trajectory
from proctor.traces.writer import DEFAULT_PATH, KEYS, TrajectoryWriter
from tests.traces.rows import rows_of

HEADER = '{"version": 1, "format": "aec-bench-trajectory"}'
AT = 1_763_248_000_123_456_789
STAMP = "2025-11-15T23:06:40.123Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trajectory.jsonl"


@pytest.fixture
def trace(path: Path) -> TrajectoryWriter:
    """A writer whose clock stands still."""
    return TrajectoryWriter(path, clock=lambda: AT)


def test_a_run_is_written_to_the_letter(trace: TrajectoryWriter, path: Path) -> None:
    trace.system("You are an engineer.")
    trace.user("Größe?")
    assert trace.new_step("main") == 1
    trace.assistant("I will compute it.")
    trace.tool_call("python", "python calc.py", {"x": 1, "a": None})
    trace.tool_result("python", "5.2V", exit_code=0, duration_ms=142, metadata={"tokens": 7})
    assert trace.new_step() == 2
    trace.tool_call("read")
    trace.tool_result("read", "x", "y", media=["a.png"], output_summary="short")
    stamp = f'"timestamp": "{STAMP}"}}'
    assert path.read_text(encoding="utf-8").split("\n") == [
        HEADER,
        f'{{"role": "system", "step": 0, "content": "You are an engineer.", {stamp}',
        f'{{"role": "user", "step": 0, "content": "Größe?", {stamp}',
        '{"role": "assistant", "step": 1, "content": "I will compute it.", "call_type": "main", '
        + stamp,
        '{"role": "tool_call", "step": 1, "tool_name": "python", "command": "python calc.py", '
        f'"arguments": {{"x": 1, "a": null}}, "call_type": "main", {stamp}',
        '{"role": "tool_result", "step": 1, "tool_name": "python", "stdout": "5.2V", "stderr": "", '
        '"exit_code": 0, "duration_ms": 142, "metadata": {"tokens": 7}, "call_type": "main", '
        + stamp,
        f'{{"role": "tool_call", "step": 2, "tool_name": "read", "command": "", {stamp}',
        '{"role": "tool_result", "step": 2, "tool_name": "read", "stdout": "x", "stderr": "y", '
        f'"media": ["a.png"], "output_summary": "short", {stamp}',
        "",
    ]


def test_keys_are_those_of_the_format_in_its_order() -> None:
    assert KEYS == trajectory_entry.KEYS
    assert module.ROLES == trajectory_entry.ROLES
    header = {"version": trajectory_entry.VERSION, "format": trajectory_entry.FORMAT}
    assert header == module.HEADER


def test_the_default_path_is_the_documented_one() -> None:
    assert DEFAULT_PATH == "/workspace/trajectory.jsonl"


def test_the_header_can_be_left_out(path: Path) -> None:
    with TrajectoryWriter(path, header=False) as trace:
        trace.user("x")
    assert path.read_text().startswith('{"role": "user"')


def test_a_line_is_there_before_the_writer_is_closed(trace: TrajectoryWriter, path: Path) -> None:
    for count in range(1, 5):
        trace.user("x")
        assert len(rows_of(path)) == count


def test_the_same_system_prompt_again_is_not_written_again(
    trace: TrajectoryWriter, path: Path
) -> None:
    for text in ("a", "a", "b", "a", "a"):
        trace.system(text)
    assert [row["content"] for row in rows_of(path)] == ["a", "b", "a"]


def test_a_message_of_the_user_stands_at_the_step_where_it_came(
    trace: TrajectoryWriter, path: Path
) -> None:
    trace.user("first")
    trace.new_step()
    trace.new_step()
    trace.user("second")
    trace.system("third")
    assert [row["step"] for row in rows_of(path)] == [0, 2, 2]


def test_a_call_type_lasts_for_its_step(trace: TrajectoryWriter, path: Path) -> None:
    trace.new_step("warmup")
    trace.assistant("a")
    trace.new_step()
    trace.thinking("b")
    assert [row.get("call_type") for row in rows_of(path)] == ["warmup", None]
    assert [row["role"] for row in rows_of(path)] == ["assistant", "assistant"]


@pytest.mark.parametrize(
    ("stdout", "given", "summary"),
    [
        ("x" * 200, None, None),
        ("x" * 201, None, "x" * 200 + "…"),
        ("é" * 300, None, "é" * 200 + "…"),
        ("x" * 300, "mine", "mine"),
        ("", None, None),
    ],
)
def test_a_long_output_gets_a_summary(
    trace: TrajectoryWriter, path: Path, stdout: str, given: str | None, summary: str | None
) -> None:
    trace.tool_result("t", stdout, output_summary=given)
    assert rows_of(path)[0].get("output_summary") == summary


def test_an_unknown_exit_code_is_not_zero(trace: TrajectoryWriter, path: Path) -> None:
    trace.tool_result("t", "x")
    assert "exit_code" not in rows_of(path)[0]


def test_an_entry_may_go_forward_by_itself(trace: TrajectoryWriter, path: Path) -> None:
    trace.entry(role="assistant", step=4)
    trace.assistant("x")
    trace.entry(role="assistant", step=1)
    assert [row["step"] for row in rows_of(path)] == [4, 4, 1]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"role": "r", "foo": 1, "bar": 2}, "unknown key bar, foo; an entry has a role and any of"),
        ({"content": "x"}, "no role; an entry has a role and any of: role, step, content"),
    ],
)
def test_keys_that_the_format_lacks_are_refused(
    trace: TrajectoryWriter, path: Path, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TypeError, match=sentence):
        trace.entry(**fields)
    assert rows_of(path) == []


def test_a_closed_writer_says_so(trace: TrajectoryWriter, path: Path) -> None:
    trace.close()
    trace.close()
    with pytest.raises(
        ValueError, match=f"{re.escape(str(path))}: closed; expected an open writer"
    ):
        trace.user("x")


BREAKS = "".join(map(chr, (*range(0x20), 0x7F, 0x85, 0x2028, 0x2029))) + "\r\n\\\"'/é測😀\ufeff"


def test_every_line_break_that_unicode_has_is_escaped(trace: TrajectoryWriter, path: Path) -> None:
    trace.user(BREAKS)
    trace.tool_call("t", BREAKS, {BREAKS: [BREAKS]})
    trace.tool_result("t", BREAKS, BREAKS, media=[BREAKS], metadata={BREAKS: BREAKS})
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4
    said, called, came = read_as_peer(path)
    assert (said.content, called.arguments) == (BREAKS, {BREAKS: [BREAKS]})
    assert (came.stderr, came.media, came.metadata) == (BREAKS, [BREAKS], {BREAKS: BREAKS})


def test_the_source_is_plain_and_old_enough_for_python_3_8() -> None:
    source = Path(module.__file__).read_bytes()
    tree = ast.parse(source.decode("ascii"), feature_version=(3, 8))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def test_the_example_of_the_source_runs_with_nothing_but_the_standard_library(
    tmp_path: Path,
) -> None:
    source = Path(module.__file__)
    (tmp_path / "trajectory_writer.py").write_bytes(source.read_bytes())
    docstring = ast.get_docstring(ast.parse(source.read_text())) or ""
    (example,) = re.findall(r"^ {4}from .*?duration_ms=142\)$", docstring, re.DOTALL | re.MULTILINE)
    program = "\n".join(line.removeprefix("    ") for line in example.splitlines())
    program = program.replace("secrets=", "'t.jsonl', secrets=")
    (tmp_path / "example.py").write_text(
        f"import sys\nsys.path[0:0] = ['.']\nkey = 'k'*9\n{program}"
    )
    command = [sys.executable, "-I", "-S", "-B", "-W", "error", "example.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [entry.step for entry in load_trajectory(str(tmp_path / "t.jsonl")).entries] == [
        *(0, 0, 1, 1, 1)
    ]


def test_a_path_may_be_of_any_kind(tmp_path: Path) -> None:
    for name in ("a", tmp_path / "b", "测\udc80"):
        with TrajectoryWriter(tmp_path / name) as trace:
            trace.user("x")
        assert os.fspath(tmp_path / name) == trace.path
        assert (tmp_path / name).read_text().startswith(HEADER)
