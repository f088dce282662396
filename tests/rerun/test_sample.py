"""Which trials are run again: fixed by their names and a seed."""

from hypothesis import given
from hypothesis import strategies as st

from proctor.digest import sha256_hex
from proctor.rerun.sample import choose_trials

NAMES = [f"task-{n}__abc" for n in range(10)]


def test_the_sample_is_the_same_on_every_machine() -> None:
    assert choose_trials(NAMES, 4, "7") == [
        "task-3__abc",
        "task-1__abc",
        "task-8__abc",
        "task-0__abc",
    ]
    assert choose_trials(NAMES, 4, "8") == [
        "task-2__abc",
        "task-0__abc",
        "task-8__abc",
        "task-5__abc",
    ]


def test_the_rule_is_the_one_that_is_documented() -> None:
    by_hand = sorted(NAMES, key=lambda name: sha256_hex(f"s\n{name}".encode()))
    assert choose_trials(NAMES, 10, "s") == by_hand


@given(st.permutations(NAMES), st.integers(1, 12), st.text())
def test_neither_order_nor_other_trials_change_it(names: list[str], n: int, seed: str) -> None:
    chosen = choose_trials(names, n, seed)
    assert chosen == choose_trials(NAMES, n, seed)
    assert len(chosen) == min(n, len(NAMES))
    without = [name for name in names if name != chosen[0]]
    assert choose_trials(without, n - 1, seed) == chosen[1:]
