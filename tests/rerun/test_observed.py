"""What commands gave then and now: what honestly varies, and what does not."""

import pytest

from proctor.rerun.observed import Difference, compare_all, normalise
from proctor.traces.commands import Observation, ShellCommand


def gave(text: str | None, code: int | None = 0, step: int = 1) -> ShellCommand:
    return ShellCommand(
        step=step, tool="bash", command=f"c{step}", observation=Observation(text, code)
    )


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("2026-08-05T12:00:00Z x", "2026-11-16 08:41:00.123456+00:00 x"),
        ("Tue Aug  5 12:00:00 UTC 2026", "Mon Nov 16 08:41:07 UTC 2026"),
        ("-rw-r--r-- 1 root root 3 Aug  5 12:00 a", "-rw-r--r-- 1 root root 3 Nov 16 08:41 a"),
        ("-rw-r--r-- 1 root root 3 Aug  5  2024 a", "-rw-r--r-- 1 root root 3 Nov 16 08:41 a"),
        ("done at 12:00:01,", "done at 8:41:59,"),
        ("3 passed in 0.12s", "3 passed in 1.05s"),
        ("took 17 ms", "took 9 ms"),
        ("in /tmp/tmpa1b2c3/x", "in /tmp/tmp_9zz/x"),
        ("in /tmp/tmp.AbCdEfGhIj", "in /tmp/tmp.0123456789"),
        ("pid 17, PID=4", "pid 92, PID=12345"),
        ("[1] 4711", "[1] 93"),
        ("<object at 0x7f00aa11bb22>", "<object at 0x7fffffff0000>"),
        ("\x1b[32mok\x1b[0m  \n\n", "ok"),
    ],
)
def test_what_honestly_varies_is_no_difference(then: str, now: str) -> None:
    assert normalise(then) == normalise(now)
    found = compare_all([gave(then)], [gave(now)])
    assert (found.equal, found.equal_after, found.first) == (1, 1, None)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("42", "43"),
        ("12345", "12346"),
        ("a\nb", "a"),
        ("a", "a\nb"),
        ("in /tmp/answer", "in /tmp/other"),
        ("3 passed in 0.12s", "2 passed in 0.12s"),
        ("score 0.91", "score 0.92"),
        ("version 1.2.3", "version 1.2.4"),
        ("  a", "a"),
        ("12 items", "13 items"),
        ("127.0.0.1:8000", "127.0.0.1:8001"),
    ],
)
def test_anything_else_is(then: str, now: str) -> None:
    assert compare_all([gave(then)], [gave(now)]).first is not None


def test_the_first_difference_is_shown_by_its_line() -> None:
    then = [gave("same"), gave("a\nb\nc", step=2), gave("x", step=3)]
    now = [gave("same"), gave("a\nB\nc", step=2), gave("y", step=3)]
    found = compare_all(then, now)
    assert found.first == Difference(step=2, command="c2", what="output", then="b", now="B")
    assert (found.commands, found.compared, found.equal) == (3, 3, 1)


def test_exit_codes_count_where_both_are_on_record() -> None:
    assert compare_all([gave("a", 0)], [gave("a", 1)]).first == Difference(
        step=1, command="c1", what="exit code", then="0", now="1"
    )
    assert compare_all([gave("a", None)], [gave("a", 1)]).first is None
    assert compare_all([gave("killed", -1)], [gave("timed out", -1)]).first is None


def test_a_command_that_was_not_reached_is_a_difference() -> None:
    found = compare_all([gave("a"), gave("b", step=2)], [gave("a")])
    assert found.first == Difference(
        step=2, command="c2", what="result", then="b", now="not reached"
    )


def test_of_an_output_that_was_not_kept_the_beginning_counts() -> None:
    then = ShellCommand(step=1, tool="bash", command="c", observation=Observation(None, 0, "begin"))
    assert compare_all([then], [gave("beginning and end")]).first is None
    assert compare_all([then], [gave("another")]).first is not None


def test_of_an_output_whose_middle_was_cut_both_ends_count_in_whole_lines() -> None:
    kept = Observation(None, 0, "first\ntook 0.1", "2s\nlast\n")
    then = ShellCommand(step=1, tool="bash", command="c", observation=kept)
    found = compare_all([then], [gave("first\ntook 0.35s\n…\ntook 9s\nlast\n")])
    assert (found.first, found.equal_after) == (None, 1)
    first = compare_all([then], [gave("first\ntook 1s\nanother\n")]).first
    assert first is not None
    assert (first.then, first.now) == ("last", "another")
    first = compare_all([then], [gave("1st\nlast\n")]).first
    assert first is not None
    assert (first.then, first.now) == ("first", "1st")


def test_what_is_not_on_record_is_not_compared() -> None:
    silent = ShellCommand(step=1, tool="bash", command="c")
    found = compare_all([silent], [gave("a")])
    assert (found.commands, found.compared, found.first) == (1, 0, None)


def test_long_texts_are_shortened() -> None:
    first = compare_all([gave("a" * 999)], [gave("b" * 999)]).first
    assert first is not None
    assert len(first.then) == len(first.now) == 160
