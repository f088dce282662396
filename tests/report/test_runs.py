"""Which attempts of a run count, and which are only told of."""

from proctor.ledger.counting import count_left_out, counted_trials
from proctor.ledger.query import with_restarted
from tests.report.attempts import make_attempt


def test_what_was_superseded_withheld_or_begun_again_is_in_no_number() -> None:
    attempts = with_restarted(
        [
            make_attempt("a", trial_id="a__1.attempt-1", reward=None),
            make_attempt("a", trial_id="a__1"),
            make_attempt("b", trial_id="b__1", status="superseded"),
            make_attempt("c", trial_id="c__1", status="withheld"),
            make_attempt("d", trial_id="alone.attempt-1"),
        ]
    )
    counted, left_out = counted_trials(attempts), count_left_out(attempts)
    assert [each.trial_id for each in counted] == ["a__1", "alone.attempt-1"]
    assert left_out == {"begun again": 1, "superseded": 1, "withheld": 1}


def test_no_attempt_counts_at_a_trial_that_was_given_up_because_its_machines_died() -> None:
    attempts = with_restarted(
        [
            # Its driver was killed; then its workers died more often than --max-lost.
            make_attempt("a", trial_id="a__1.attempt-1", reward=None),
            make_attempt("a", trial_id="a__1.attempt-2", reward=None, exception="WorkerLostError"),
            make_attempt("b", trial_id="b__1.attempt-1", reward=None),
        ]
    )
    assert [each.trial_id for each in counted_trials(attempts)] == ["b__1.attempt-1"]
    assert count_left_out(attempts) == {"begun again": 2}
