"""The page's script and the writer read any trace alike: a difference would be a false alarm."""

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from proctor.report.case.spelled import on_one_line
from proctor.report.case.steps import find_traces, read_steps
from tests.report.cases import make_page

KEYS = (
    "role", "step", "content", "tool_name", "command", "stdout", "stderr", "output_summary",
    "parts", "kind", "part_kind", "event", "arguments", "tool_call_id", "tool_calls",
    "function_call", "function", "name", "id", "type", "text", "thinking", "refusal", "input",
    "tool_use_id", "args", "format", "version", "steps", "source", "message", "observation",
    "results", "function_name", "source_call_id", "__proto__", "constructor", "cmd", "keystrokes",
)  # fmt: skip
WORDS = (
    "assistant", "user", "system", "tool", "function", "agent", "request", "response",
    "tool_call", "tool_result", "message", "tool_use", "server_tool_use", "web_tool_result",
    "text", "tool-call", "tool-return", "system-prompt", "thinking", "c1", "bash",
    '{"command":"ls"}', '{"cmd":NaN}', "[1]", "\ufffd\ufffd", "\u2028", "\ufeff", "\x00", "\x85",
)  # fmt: skip
LONE = "half \ud800 of"
BYTES = (b"\xff", b"\xe2\x82", b"\n", b"\r", b"{", b"[[", b"\xef\xbb\xbf", b" ", b"\x00", b",")


def any_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(9 if depth < 4 else 6)
    if kind < 3:
        return chance.choice((*WORDS, LONE, "", " a \t b "))
    if kind < 6:
        numbers = (0, 1, -1, 1.0, 2.5, True, False, None, 10**15, 2**53, 10**30, 1e300)
        return chance.choice(numbers)
    if kind == 6:
        return [any_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {
        chance.choice(KEYS): any_value(chance, depth + 1) for _ in range(chance.randrange(1, 8))
    }


def any_trace(chance: random.Random) -> tuple[str, bytes]:
    """A path and bytes: lines or a document, sometimes damaged."""
    if chance.random() < 0.3:
        path = "agent/trajectory.json"
        document = {"steps": [any_value(chance, 1) for _ in range(4)]}
        data = json.dumps(document).encode()
    else:
        path = "agent/conversation.jsonl"
        rows = [any_value(chance) for _ in range(6)]
        rows[0] = {"kind": "request", "parts": [any_value(chance, 2) for _ in range(4)]}
        rows[1] = {"role": "assistant", "content": [any_value(chance, 2) for _ in range(4)]}
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if chance.random() < 0.3:
        at = chance.randrange(len(data))
        data = data[:at] + chance.choice(BYTES) + data[at + chance.randrange(2) :]
    return path, data


def read_by_page(page: Page, traces: list[tuple[str, bytes]]) -> list[list[list[Any]]]:
    ask = """(traces) => traces.map(([path, data]) =>
      readTrace(path, fromBase64(data), 8).map(({step, role, tool, text}) =>
        [step, ...[role, tool, text].map((each) => onOneLine(each))]))"""
    coded = [(path, base64.b64encode(data).decode()) for path, data in traces]
    answers: list[list[list[Any]]] = page.evaluate(ask, coded)
    return answers


def hold_against_each_other(page: Page, path: Path, count: int) -> None:
    page.goto(path.as_uri())
    page.locator(".verdict").wait_for()
    chance = random.Random(8)
    traces = [any_trace(chance) for _ in range(count)]
    for (name, data), found in zip(traces, read_by_page(page, traces), strict=True):
        expected = [
            [step.step, *map(on_one_line, (step.role, step.tool, step.text))]
            for step in read_steps(name, data, 8)
        ]
        assert found == expected, data


def test_any_trace_is_read_alike(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "case.html"
    path.write_bytes(make_page(tmp_path))
    hold_against_each_other(page, path, 300)


@pytest.mark.soak
def test_very_many_traces_are_read_alike(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "case.html"
    path.write_bytes(make_page(tmp_path))
    hold_against_each_other(page, path, 30_000)


def test_deep_lines_are_read_alike(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "case.html"
    path.write_bytes(make_page(tmp_path))
    page.goto(path.as_uri())
    page.locator(".verdict").wait_for()
    traces = [
        ("a.jsonl", b'{"role": "user", "content": "x", "more": ' + b"[" * n + b"]" * n + b"}\n")
        for n in (10, 198, 199, 200, 201, 2000, 100_000)
    ]
    for (name, data), found in zip(traces, read_by_page(page, traces), strict=True):
        assert [each[1] for each in found] == [step.role for step in read_steps(name, data, 8)]


def test_which_trace_is_looked_at_is_alike(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "case.html"
    path.write_bytes(make_page(tmp_path))
    page.goto(path.as_uri())
    page.locator(".verdict").wait_for()
    paths = [
        "steps/two/agent/trajectory.jsonl", "steps/\uff5e/agent/trajectory.json", "result.json",
        "steps/\U0001f600/agent/conversation.jsonl", "artifacts/trajectory.jsonl", "own.jsonl",
        "agent/trajectory.json", "steps/x", "trajectory.jsonl",
    ]  # fmt: skip
    found = page.evaluate("([paths, named]) => findTraces(paths, named)", [paths, ["own.jsonl"]])
    assert found == find_traces(paths, ["own.jsonl"])
