"""One definition of an error, the surest sign first; and whether it was got over."""

from typing import Any

import pytest

from proctor.traces.entry import Entry
from proctor.traces.summary import summarise
from proctor.traces.tool_errors import find_error
from tests.traces.samples import called, gave, ran, said


def spoken(**flags: Any) -> dict[str, Any]:
    return {"conversation": flags}


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (gave(1, 1), "exit_nonzero"),
        (gave(1, -1), "exit_nonzero"),
        (gave(1, 1, metadata=spoken(is_error=True)), "exit_nonzero"),
        (gave(1, 0, metadata=spoken(is_error=True)), "is_error"),
        (gave(1, None, metadata={"is_error": True}), "is_error"),
        (gave(1, None, metadata={"timed_out": True}), "timeout_or_signal"),
        (gave(1, None, metadata={"atif": {"extra": {"signal": "SIGKILL"}}}), "timeout_or_signal"),
        (gave(1, None, "bash: line 1: 7 Killed\nKilled"), "timeout_or_signal"),
        (gave(1, None, "Command timed out after 30 seconds"), "timeout_or_signal"),
        (gave(1, None, "out\n[exit code: 2]"), "exit_nonzero"),
        (gave(1, None, "<returncode>1</returncode>"), "exit_nonzero"),
        (gave(1, None, '{"output": "", "metadata": {"exit_code": 4}}'), "exit_nonzero"),
        (gave(1, None, "Traceback (most recent call last):\n x"), "text"),
        (gave(1, None, stderr="ValueError: no"), "text"),
        (gave(1, None, "bash: foo: command not found"), "text"),
        (gave(1, None, "cat: x: No such file or directory"), "text"),
        (gave(1, 0, "Traceback (most recent call last):"), None),
        (gave(1, 0, metadata=spoken(is_error=False)), None),
        (gave(1, None, "grep hit: 'Error: handled'\n[exit code: 0]"), None),
        (gave(1, None, "the text says Error: in the middle"), None),
        (gave(1, None, "Output: ok\nError: (none)\nExit Code: 0\nSignal: (none)"), None),
        (gave(1, None, "Output: (empty)\nError: no rule\nExit Code: 0\nSignal: 0"), None),
        (gave(1, None, "Output: ok\nError: (none)\nExit Code: 2\nSignal: 0"), "exit_nonzero"),
        (gave(1, None, "Output: ok\nError: (none)\nExit Code: (none)"), None),
        (gave(1, None, "Output: ok\nError: (none) of it\nExit Code: (none)"), "text"),
        (gave(1, None, metadata=spoken(is_error="yes")), None),
        (gave(1, None), None),
    ],
)
def test_an_error_has_the_reason_of_its_surest_sign(result: Entry, reason: str | None) -> None:
    found = find_error(result)
    assert (found and found[0]) == reason


def test_the_first_error_says_step_tool_command_reason_and_text() -> None:
    trace = [said(3), called(3, "make"), gave(3, 2, "building", stderr="no rule\n")]
    first = summarise(trace).errors.first
    assert first is not None
    assert (first.step, first.tool, first.command) == (3, "bash", "make")
    assert (first.reason, first.exit_code, first.text) == ("exit_nonzero", 2, "no rule")
    assert not first.is_recovered


def test_an_error_is_recovered_when_its_tool_works_again_and_better_when_its_command_does() -> None:
    trace = [*ran(1, "make", 2, "bad"), *ran(2, "vi Makefile"), *ran(3, "make")]
    first = summarise(trace).errors.first
    assert first is not None
    assert (first.tool_worked_at, first.command_worked_at) == (2, 3)


def test_another_tool_that_works_recovers_nothing() -> None:
    trace = [*ran(1, "make", 2, "bad"), called(2, "x", "python"), gave(2, 0, tool_name="python")]
    last = summarise(trace).errors.last
    assert last is not None
    assert not last.is_recovered


def test_results_of_parallel_calls_go_to_the_calls_of_their_names_in_their_order() -> None:
    trace = [
        called(1, "a"),
        called(1, "b", "python"),
        called(1, "c"),
        gave(1, 1, tool_name="python"),
        gave(1, 0),
        gave(1, 1),
    ]
    errors = summarise(trace).errors
    assert errors.first is not None
    assert errors.last is not None
    assert (errors.first.command, errors.last.command) == ("b", "c")


def test_a_call_that_never_got_a_result_takes_none_of_a_later_step() -> None:
    trace = [called(1, "lost"), *ran(2, "found", 1)]
    first = summarise(trace).errors.first
    assert first is not None
    assert first.command == "found"


def test_what_is_kept_of_an_error_is_bounded() -> None:
    trace = [called(1, "c" * 10_000), gave(1, 1, "o" * 1_000_000)]
    first = summarise(trace).errors.first
    assert first is not None
    assert len(first.text) < 500
    assert len(first.command) < 500


def test_errors_are_counted_by_reason_tool_and_exit_code() -> None:
    trace = [*ran(1, "a", 1), *ran(2, "b", 1), *ran(3, "c", None, "Error: x"), *ran(4, "d")]
    errors = summarise(trace).errors
    assert errors.by_reason == {"exit_nonzero": 2, "text": 1}
    assert errors.by_tool == {"bash": 3}
    assert errors.by_exit_code == {"1": 2}
    assert errors.rate == 3 / 4
