"""Where two trajectories part, and who parted first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.traces.actions import normalise_answer, normalise_command, read_actions
from proctor.traces.divergence import Divergence, First, Opening, align, compare_actions
from proctor.traces.entry import Entry


def ran(step: int, command: str, answer: str | None = "ok", code: int | None = 0) -> list[Entry]:
    call = Entry(role="tool_call", step=step, tool_name="bash", command=command)
    if answer is None:
        return [call]
    result = Entry(role="tool_result", step=step, tool_name="bash", stdout=answer, exit_code=code)
    return [call, result]


def compared(a: list[list[Entry]], b: list[list[Entry]]) -> Divergence:
    return compare_actions(
        *(read_actions(each for step in side for each in step) for side in (a, b))
    )


def test_equal_trajectories_part_nowhere() -> None:
    both = [ran(1, "ls"), ran(2, "make")]
    found = compared(both, both)
    assert (found.first, found.prefix, found.same) == (First.NEITHER, 2, 2)
    assert found.action is None
    assert found.hunks == ()


def test_the_agent_is_first_where_all_answers_were_the_same() -> None:
    found = compared([ran(1, "ls"), ran(2, "make")], [ran(1, "ls"), ran(3, "pytest")])
    assert (found.first, found.prefix) == (First.AGENT, 1)
    assert found.answer is None
    assert found.action is not None
    assert found.action.a is not None
    assert found.action.b is not None
    assert (found.action.a.step, found.action.b.step) == (2, 3)


def test_the_environment_is_first_where_an_answer_differed_before() -> None:
    found = compared([ran(1, "ls", "a"), ran(2, "x")], [ran(1, "ls", "b"), ran(2, "y")])
    assert found.first is First.ENVIRONMENT
    assert found.answer is not None
    assert (found.answer.number, found.answer.a and found.answer.a.answer) == (1, "a")


def test_another_exit_code_is_another_answer_and_none_is_no_answer() -> None:
    assert compared([ran(1, "x", "", 0)], [ran(1, "x", "", 1)]).first is First.ENVIRONMENT
    assert compared([ran(1, "x", None)], [ran(1, "x", "y")]).first is First.NEITHER


def test_one_that_ends_earlier_parts_there() -> None:
    found = compared([ran(1, "ls")], [ran(1, "ls"), ran(2, "make")])
    assert found.first is First.AGENT
    assert found.action is not None
    assert found.action.a is None
    assert (found.only_a, found.only_b) == (0, 1)


def test_what_is_said_is_not_compared_but_saying_something_is_an_action() -> None:
    says = [Entry(role="assistant", step=1, content="one")]
    other = [Entry(role="assistant", step=1, content="two")]
    assert compared([says], [other]).first is First.NEITHER
    assert compared([says], [ran(1, "ls")]).first is First.AGENT


def test_parallel_calls_are_held_against_their_own_answers() -> None:
    calls = [*ran(1, "a", None), *ran(1, "b", None)]
    results = [ran(1, "", text)[1] for text in ("first", "second")]
    actions = list(read_actions([*calls, *results]))
    assert [(each.command, each.answer) for each in actions] == [("a", "first"), ("b", "second")]


def test_what_comes_after_is_aligned_and_counted() -> None:
    a = [ran(n, f"c{n}") for n in (1, 2, 3, 4, 5)]
    b = [ran(1, "c1"), ran(2, "new"), ran(3, "c3"), ran(4, "c4", "other"), ran(5, "c5")]
    found = compared(a, b)
    assert (found.same, found.only_a, found.only_b, found.answers_differ) == (4, 1, 1, 1)
    assert [(hunk.kind, hunk.count) for hunk in found.hunks] == [
        ("only_a", 1),
        ("only_b", 1),
        ("same", 3),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ls  -la ", "ls -la"),
        ("\n  ls\n\nmake\r\n", "ls\nmake"),
        ("a\tb", "a b"),
    ],
)
def test_blanks_that_mean_nothing_make_no_other_command(one: str, other: str) -> None:
    assert normalise_command(one) == normalise_command(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [('echo "a  b"', 'echo "a b"'), ("if x:\n    y\nz", "if x:\n    y\n    z"), ("ab", "a b")],
)
def test_blanks_that_may_mean_something_do(one: str, other: str) -> None:
    assert normalise_command(one) != normalise_command(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1 passed in 0.12s", "1 passed in 3.4s"),
        ("real\t0m0.012s", "real\t1m3.5s"),
        ("at 2026-11-15T18:51:28.792Z", "at 2027-01-02 03:04:05"),
        ("-rw-r--r-- 1 root Nov 16 11:48 x", "-rw-r--r-- 1 root Nov  7 09:01 x"),
        ("Mon Nov 16 11:48:23 UTC 2026", "Tue Dec 1 01:02:03 UTC 2026"),
        ("[1] 4242", "[1] 17"),
        ("PID: 12 started", "PID: 4567 started"),
        ("wrote /tmp/tmpab12cd34/x", "wrote /tmp/tmpzz99yy88/x"),
        ("<object at 0x7f00aa11bb22>", "<object at 0x7fffcc33dd44>"),
        ("on http://localhost:34567/", "on http://localhost:45678/"),
        ("\x1b[31mred\x1b[0m  \n", "red"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-e89b-12d3-a456-426614174999"),
    ],
)
def test_what_differs_from_run_to_run_is_no_other_answer(one: str, other: str) -> None:
    assert normalise_answer(one) == normalise_answer(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1 failed", "2 failed"), ("x = 3", "x = 4"), ("/app/one.py", "/app/two.py"), ("80%", "90%")],
)
def test_what_may_mean_something_is_another_answer(one: str, other: str) -> None:
    assert normalise_answer(one) != normalise_answer(other)


def test_an_answer_of_blanks_that_ends_in_a_word_is_made_comparable_at_once() -> None:
    assert normalise_answer(f"{' ' * 500_000}z \t\r\n \n") == f"{' ' * 500_000}z"


def test_being_told_something_else_is_noticed() -> None:
    said = [[Entry(role="user", step=0, content=text)] for text in ("a", "a", "b")]
    openings = [Opening() for _ in said]
    for opening, entries in zip(openings, said, strict=True):
        list(opening.listen([*entries, *ran(1, "ls")]))
    assert openings[0].is_same(openings[1])
    assert not openings[0].is_same(openings[2])


# Alignment

letters = st.lists(st.integers(0, 6), max_size=30)


def longest_common(left: list[int], right: list[int]) -> int:
    row = [0] * (len(right) + 1)
    for item in left:
        before = row[:]
        for at, other in enumerate(right):
            row[at + 1] = before[at] + 1 if item == other else max(row[at], before[at + 1])
    return row[-1]


@given(left=letters, right=letters)
def test_as_many_as_can_be_are_paired(left: list[int], right: list[int]) -> None:
    blocks = align(left, right)
    for block in blocks:
        assert left[block.left :][: block.size] == right[block.right :][: block.size]
    assert sum(block.size for block in blocks) == longest_common(left, right)


@pytest.mark.parametrize("shape", ["inserted", "all-alike", "periodic", "reversed", "different"])
def test_long_sequences_are_aligned_all_the_same(shape: str) -> None:
    size = 20_000
    left = list(range(size))
    right = [*left[:50], *range(-300, 0), *left[50:]]
    if shape == "all-alike":
        left, right = [1] * size, [1] * (size + 7)
    elif shape == "periodic":
        left, right = [at % 3 for at in range(size)], [at % 5 for at in range(size)]
    elif shape == "reversed":
        right = left[::-1]
    elif shape == "different":
        right = [-1 - at for at in range(size)]
    blocks = align(left, right)
    assert all(
        left[block.left :][: block.size] == right[block.right :][: block.size] for block in blocks
    )
    if shape in ("inserted", "all-alike"):
        assert sum(block.size for block in blocks) == size
