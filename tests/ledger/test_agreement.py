"""Whatever an owner with the key appends: verify fails by name, or all views agree on every count.

The commands are run as people run them, on ledgers whose lines and checkpoints were made by hand.
"""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.cli.programs import Proctor, run_here
from tests.examples import examples
from tests.ledger.owner import EXPERIMENTS, Move, Owner
from tests.ledger.views import Counts, view_all

_NUMBERS = count()
_REWARDS = st.sampled_from([None, 0.0, 0.5, 1.0])
_PLACES = st.integers(0, 4)
_SEAL = st.tuples(
    st.just("seal"),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([0, 0, 1]),
    _REWARDS,
    st.sampled_from(["plain", "plain", "errored", "bare", "partial", "model"]),
)
_WITHHOLD = st.tuples(
    st.just("withhold"),
    _PLACES,
    st.sampled_from(["own", "nobody", "another", "never"]),
    st.booleans(),
)
_SUPERSEDE = st.tuples(
    st.just("supersede"), _PLACES, st.one_of(_PLACES, st.sampled_from(["missing", "itself"]))
)
_MOVES = st.one_of(
    _SEAL,
    _SEAL,
    _WITHHOLD,
    _WITHHOLD,
    _SUPERSEDE,
    _SUPERSEDE,
    st.tuples(st.just("keep"), _PLACES, _REWARDS),
    st.tuples(st.just("duplicate"), _PLACES, _REWARDS),
    st.tuples(st.just("rename"), _PLACES, st.sampled_from(["case", "homoglyph", "space", "new"])),
    st.tuples(st.just("withhold_note"), st.sampled_from(["nobody", "never"]), st.booleans()),
    st.tuples(st.just("withhold_files"), _PLACES, st.booleans()),
    st.tuples(st.just("resign"), st.integers(0, 3), st.booleans()),
    st.tuples(
        st.just("hand_over"), st.sampled_from(["valid", "valid", "replay", "back", "stranger"])
    ),
    st.tuples(
        st.just("remark"),
        st.sampled_from(["review", "rescore", "note", "plan"]),
        st.one_of(st.none(), _PLACES),
        st.sampled_from([False, False, False, True]),
    ),
)
_FIRST = st.lists(_SEAL, min_size=1, max_size=2)
_SEQUENCES = st.builds(lambda first, rest: [*first, *rest], _FIRST, st.lists(_MOVES, max_size=6))


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


def check_agreement(proctor: Proctor, scratch: Path, moves: Sequence[Move]) -> None:
    """Make the ledger, and look at it in every way there is."""
    owner = Owner()
    for move in moves:
        owner.move(move)
    place = scratch / f"{next(_NUMBERS)}"
    ledger = owner.write(place / "ledger")
    try:
        note(f"moves = {list(moves)!r}")
        _look(proctor, ledger, place, owner)
    finally:
        shutil.rmtree(place)


def _look(proctor: Proctor, ledger: Path, scratch: Path, owner: Owner) -> None:
    verified = proctor("ledger", "verify", "--ledger", ledger, "--json")
    found = json.loads(verified.out)
    if verified.code != 0:
        assert verified.code == 1, verified
        assert all(damage["kind"] and damage["message"] for damage in found["damage"])
        assert found["damage"]
        return
    rows = json.loads(proctor("ledger", "list", "--json", "--ledger", ledger).out)
    # Every line that is signed is one row, and every line that is gone is one, too.
    named = [row["experiment_id"] for row in rows if row["trial_id"] is not None]
    gone, nameless = owner.find_gone()
    present = [trial.experiment for trial in owner.find_present()]
    assert len(rows) == len(present) + len(gone) + len(nameless), rows
    assert sum(row["status"] == "withheld" for row in rows) == len(gone) + len(nameless)
    assert not Counter(present) - Counter(named)
    for experiment in sorted(set(named) & set(EXPERIMENTS)):
        _compare(experiment, view_all(proctor, ledger, experiment, scratch))


def _compare(experiment: str, views: dict[str, Counts]) -> None:
    for name in sorted({key for counts in views.values() for key in counts}):
        said = {view: counts[name] for view, counts in views.items() if name in counts}
        assert len(set(said.values())) == 1, f"{experiment}: {name}: {said}"


_SETTINGS = settings(
    max_examples=examples(40),
    derandomize=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_SETTINGS
@given(moves=_SEQUENCES)
def test_verify_fails_by_name_or_all_views_agree(
    proctor: Proctor, tmp_path: Path, moves: list[Move]
) -> None:
    check_agreement(proctor, tmp_path, moves)


@pytest.mark.soak
@settings(_SETTINGS, max_examples=examples(2000), derandomize=False)
@given(moves=_SEQUENCES)
def test_two_thousand_ledgers_agree(proctor: Proctor, tmp_path: Path, moves: list[Move]) -> None:
    check_agreement(proctor, tmp_path, moves)
