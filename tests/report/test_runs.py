"""Which attempts of a run count, and which are only told of."""

from proctor.report.counting import leave_out
from tests.report.attempts import make_attempt


def test_what_was_superseded_withheld_or_begun_again_is_in_no_number() -> None:
    attempts = [
        make_attempt("a", trial="a__1.attempt-1", reward=None),
        make_attempt("a", trial="a__1"),
        make_attempt("b", trial="b__1", status="superseded"),
        make_attempt("c", trial="c__1", status="withheld"),
        make_attempt("d", trial="alone.attempt-1"),
    ]
    counted, left_out = leave_out(attempts)
    assert [each.trial for each in counted] == ["a__1", "alone.attempt-1"]
    assert left_out == {"begun again": 1, "superseded": 1, "withheld": 1}
