"""Which trials are sealed: every filter, one by its name, and what is refused."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from proctor.errors import InputError, LedgerError
from proctor.ledger.api import Ledger
from proctor.ledger.query import render_missing, resolve_name
from proctor.ledger.trial_index import TrialFilter
from tests.ledger.ledgers import EXPERIMENT, record_bytes
from tests.ledger.trials import open_ledger

WHEN = {
    "a-1": "2026-03-01T12:00:00Z",
    "a-2": "2026-03-01T12:00:00.5+00:00",
    "b-1": "2026-03-01T14:00:00+01:00",
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Three trials, of which one is not scored and one of another experiment."""
    with open_ledger(tmp_path) as ledger:
        ledger.seal(record_bytes("a-1", timestamp=WHEN["a-1"], dataset_id="set@1"))
        ledger.seal(
            record_bytes(
                "a-2",
                timestamp=WHEN["a-2"],
                completeness="partial",
                **{"evaluation.reward": None, "agent.model": "other", "task.task_id": "tasks/two"},
            )
        )
        ledger.seal(
            record_bytes(
                "b-1",
                timestamp=WHEN["b-1"],
                experiment_id="second",
                **{"evaluation.reward": 0.5, "agent.adapter": "scripted"},
            )
        )
        yield ledger


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (TrialFilter(), "a-1 a-2 b-1"),
        (TrialFilter(experiment="second"), "b-1"),
        (TrialFilter(experiment=EXPERIMENT, status="diagnostic"), "a-2"),
        (TrialFilter(trial="a-1"), "a-1"),
        (TrialFilter(dataset="set@1"), "a-1"),
        (TrialFilter(task="tasks/"), "a-2"),
        (TrialFilter(task="tasks/three"), ""),
        (TrialFilter(harness="scripted"), "b-1"),
        (TrialFilter(model="other"), "a-2"),
        (TrialFilter(lowest=0.5), "a-1 b-1"),
        (TrialFilter(highest=0.5), "b-1"),
        (TrialFilter(lowest=0.5, highest=0.5), "b-1"),
        (TrialFilter(status="sealed"), "a-1 b-1"),
        (TrialFilter(status="withheld"), ""),
        (TrialFilter(limit=2), "a-2 b-1"),
        (TrialFilter(limit=9), "a-1 a-2 b-1"),
        (TrialFilter(since="2026-03-01T12:00:00.250Z"), "a-2 b-1"),
        (TrialFilter(since="2026-03-01T12:00:00.500Z"), "a-2 b-1"),
        (TrialFilter(since="2026-03-01T13:00:00"), "b-1"),
        (TrialFilter(since="2026-03-01T14:00:01+01:00"), ""),
        (TrialFilter(since=datetime(2026, 3, 1, 13, tzinfo=UTC)), "b-1"),
        (TrialFilter(since=datetime(2026, 3, 1, 15, tzinfo=timezone(timedelta(hours=2)))), "b-1"),
        (TrialFilter(since="2026-03-01"), "a-1 a-2 b-1"),
    ],
)
def test_a_filter_lets_through(ledger: Ledger, wanted: TrialFilter, found: str) -> None:
    assert " ".join(row.trial_id for row in ledger.trials(wanted)) == found


def test_a_row_says_what_a_list_needs(ledger: Ledger) -> None:
    row = ledger.trials(TrialFilter(trial="a-2"))[0]
    assert (row.experiment_id, row.seq, row.model, row.task_id) == (
        EXPERIMENT,
        2,
        "other",
        "tasks/two",
    )
    assert (row.reward, row.completeness, row.status) == (None, "partial", "diagnostic")
    assert row.timestamp == "2026-03-01T12:00:00.500000Z"
    assert row.record == ledger.find("a-2").record


def test_a_reward_keeps_its_kind(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.seal(record_bytes("one", **{"evaluation.reward": 1}))
        ledger.seal(record_bytes("float", **{"evaluation.reward": 1.0}))
        assert [repr(row.reward) for row in ledger.trials()] == ["1", "1.0"]


def test_a_list_has_what_another_process_sealed_meanwhile(ledger: Ledger) -> None:
    with Ledger.open(Path(ledger.where), key=ledger.key) as other:
        other.seal(record_bytes("c-1"))
    assert [row.trial_id for row in ledger.trials(TrialFilter(limit=1))] == ["c-1"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a-1", "a-1"),
        (f"{EXPERIMENT}/a-2", "a-2"),
        (f"{EXPERIMENT}/a-2 ", None),
        ("second/b", "b-1"),
        ("b", "b-1"),
        ("2", "a-2"),
        ("nothing", None),
        ("", None),
        ("/", None),
        ("../a-1", None),
        ("99999999999999999999999999", None),
        ("a-1' OR 1=1 --", None),
        ("%", None),
    ],
)
def test_a_name_leads_to_one_trial_or_none(ledger: Ledger, name: str, found: str | None) -> None:
    if found is None:
        with pytest.raises(LedgerError, match="no trial or entry is named"):
            ledger.find(name)
    else:
        assert ledger.find(name).trial_id == found


def test_a_digest_is_a_name_too(ledger: Ledger) -> None:
    row = ledger.find("b-1")
    assert ledger.find(row.record) == ledger.find(f"sha256:{row.record[:12]}") == row


def test_a_prefix_that_fits_several_names_them(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match=f"may be any of {EXPERIMENT}/a-1, {EXPERIMENT}/a-2; exp"):
        ledger.find("a-")


def test_a_whole_id_goes_before_longer_ones(ledger: Ledger) -> None:
    ledger.seal(record_bytes("a"))
    assert ledger.find("a").trial_id == "a"


def test_an_entry_that_is_no_trial_is_known_by_its_number(ledger: Ledger) -> None:
    assert resolve_name(ledger, "0") == 0
    with pytest.raises(LedgerError, match="entry 0 is not a trial"):
        ledger.find("0")


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"status": "lost"}, "status is 'lost'; expected one of sealed, diagnostic"),
        ({"limit": 0}, "limit is 0; expected 1 or more"),
        ({"lowest": float("nan")}, "lowest is nan"),
        ({"since": "yesterday"}, "since is 'yesterday'; expected a time such as"),
        ({"model": "\udcff"}, "expected text without control characters"),
        ({"model": "a\0b"}, "expected text without control characters"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    ledger: Ledger, wish: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        ledger.trials(TrialFilter(**wish))  # type: ignore[arg-type]


def test_rows_that_nobody_takes_any_more_are_let_go_after_the_index_was_closed(
    ledger: Ledger,
) -> None:
    rows = ledger.index.trials(TrialFilter())
    next(rows)
    ledger.close()
    rows.close()  # type: ignore[attr-defined]


def test_where_an_experiment_is_missing_those_that_are_there_are_named(ledger: Ledger) -> None:
    said = render_missing(ledger, "absent")
    assert "no trial of the experiment 'absent' is sealed; there are " in said
    assert EXPERIMENT in said
