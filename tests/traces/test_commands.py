"""Which calls of a trace can be run again, and what is on record of each."""

from typing import Any

import pytest

from proctor.traces.commands import (
    Observation,
    ShellCommand,
    Unreplayable,
    read_calls,
    read_commands,
    render_cut,
)
from proctor.traces.entry import Entry


def call(tool: str, text: str | None = None, /, **arguments: Any) -> Entry:
    told = arguments or None
    return Entry(role="tool_call", step=3, tool_name=tool, command=text, arguments=told)


def result(tool: str, stdout: str, code: int | None = 0) -> Entry:
    return Entry(role="tool_result", step=3, tool_name=tool, stdout=stdout, exit_code=code)


def only(*entries: Entry) -> ShellCommand | Unreplayable:
    (found,) = read_calls(entries)
    return found


def test_a_command_of_our_own_agents_comes_with_what_it_gave() -> None:
    found = only(call("bash", "ls"), result("bash", "a\n", 2))
    assert found == ShellCommand(
        step=3, tool="bash", command="ls", observation=Observation("a\n", 2)
    )


@pytest.mark.parametrize(
    ("entry", "command", "cwd", "timeout"),
    [
        (call("Bash", "", command="ls", timeout=1500), "ls", None, 2),
        (call("bash", "", command="ls", timeout=1500), "ls", None, None),
        (call("shell", "", command=["bash", "-lc", "ls -l"]), "bash -lc 'ls -l'", None, None),
        (call("exec_command", "", cmd="ls", workdir="/app"), "ls", "/app", None),
        (call("execute_bash", "", command="ls", is_input="false"), "ls", None, None),
        (call("run_shell_command", "", command="ls", timeout_ms=100), "ls", None, 1),
        (call("bash_command", "", command="ls", cwd="/a", timeout_sec=7), "ls", "/a", 7),
        (call("bash", "", command="ls", timeout_sec=True), "ls", None, None),
    ],
)
def test_the_shells_of_known_agents_are_read(
    entry: Entry, command: str, cwd: str | None, timeout: int | None
) -> None:
    found = only(entry)
    assert isinstance(found, ShellCommand)
    assert (found.command, found.cwd, found.timeout_sec) == (command, cwd, timeout)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (call("str_replace_editor", "", path="/a"), "is not known to run shell commands"),
        (call("python", "print(1)"), "is not known to run shell commands"),
        (call("bash_command", "ls\n", keystrokes="ls\n"), "sent keystrokes to a terminal"),
        (call("execute_bash", "", command="y", is_input=True), "is input for a program"),
        (call("Bash", "", command="sleep 9", run_in_background=True), "into the background"),
        (call("bash", ""), "has no command"),
        (call("bash", "curl -H [redacted:API_KEY]"), "a redacted secret"),
        (call("bash", "", command="ls", directory="src"), "ran in 'src'"),
        (call("bash", "echo a\0b"), "contains a NUL character"),
        (call("bash", "", command="ls", cwd="/a\0b"), "contains a NUL character"),
    ],
)
def test_what_cannot_be_run_again_says_why(entry: Entry, reason: str) -> None:
    found = only(entry)
    assert isinstance(found, Unreplayable)
    assert f"step 3: tool {entry.tool_name!r}" in str(found)
    assert reason in str(found)


def test_tools_without_effect_are_passed_over() -> None:
    assert read_calls([call("think", "", thought="hm"), call("mark_task_complete")]) == []


def test_results_go_to_the_calls_that_they_answer() -> None:
    entries = [
        *(call("bash", "one"), call("other", "x"), call("bash", "two")),
        *(result("bash", "1"), result("other", "?"), result("bash", "2")),
    ]
    told = [(found.command, found.observation) for found in read_calls(entries)
            if isinstance(found, ShellCommand)]  # fmt: skip
    assert told == [("one", Observation("1", 0)), ("two", Observation("2", 0))]


def test_of_an_output_that_was_not_kept_the_beginning_is_known() -> None:
    cut = Entry(role="tool_result", step=3, tool_name="bash", output_summary="be", exit_code=0)
    found = only(call("bash", "ls"), cut)
    assert isinstance(found, ShellCommand)
    assert found.observation == Observation(None, 0, "be")


def test_calls_of_any_tool_can_be_told_apart() -> None:
    entries = [call("bash", "ls"), call("edit", "", path="a", to="b"), call("edit", "", path="a")]
    assert read_commands(entries) == ["ls", 'edit {"path": "a", "to": "b"}', 'edit {"path": "a"}']


def test_a_call_that_its_harness_did_not_run_is_passed_over() -> None:
    refused = Entry(
        role="tool_call",
        step=3,
        tool_name="python",
        command="",
        metadata={"atif": {"extra": {"malformed": "print(1)"}}},
    )
    (found,) = read_calls([refused, result("python", "error"), call("bash", "ls")])
    assert isinstance(found, ShellCommand)
    assert found.command == "ls"


def test_of_an_output_whose_middle_was_cut_both_ends_are_known() -> None:
    cut = Entry(
        role="tool_result",
        step=3,
        tool_name="bash",
        stdout=f"one{render_cut(1234)}two",
        exit_code=0,
        metadata={"atif": {"extra": {"characters_cut": 1234}}},
    )
    found = only(call("bash", "ls"), cut)
    assert isinstance(found, ShellCommand)
    assert found.observation == Observation(None, 0, "one", "two")


def test_a_command_that_took_too_long_gets_the_time_that_it_had() -> None:
    late = Entry(role="tool_result", step=3, tool_name="bash", exit_code=-1, duration_ms=2040)
    found = only(call("bash", "sleep 9", command="sleep 9", timeout=2), late)
    assert isinstance(found, ShellCommand)
    assert found.timeout_sec == 2
