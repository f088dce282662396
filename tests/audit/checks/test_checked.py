"""The answer to a check: what is kept of many diagnostics, and how many there were."""

from proctor.audit.checks.checked import Checked, Tally
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic


def answer(tally: Tally) -> Checked:
    return Checked(
        path="p", thing=FileKind.TRAJECTORY, summary="s", diagnostics=tally.kept, more=tally.more
    )


def test_the_first_twenty_of_each_kind_are_kept_in_their_order() -> None:
    tally = Tally()
    for line in range(1, 31):
        tally.add([Diagnostic("garbage", "not JSON", line), Diagnostic("torn", "cut", line)])
    assert [found.line for found in tally.kept] == [n for n in range(1, 21) for _ in range(2)]
    assert tally.more == {"garbage": 10, "torn": 10}
    assert answer(tally).n_problems == 60
    assert not answer(tally).is_sound


def test_twenty_are_not_one_too_many() -> None:
    tally = Tally()
    tally.add(Diagnostic("garbage", "not JSON", line) for line in range(20))
    assert (len(tally.kept), tally.more) == (20, {})


def test_notes_are_no_problems_however_many() -> None:
    tally = Tally()
    tally.add(Diagnostic("coerced", "read as 1", n, is_problem=False) for n in range(50))
    assert tally.more == {"coerced": 30}
    assert answer(tally).n_problems == 0
    assert answer(tally).is_sound
