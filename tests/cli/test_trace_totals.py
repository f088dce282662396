"""`trace summary` and `trace classify` of several trials: only those that count are in totals."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.task.trees import JOBS


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A harbor trial."""
    (original,) = sorted((JOBS / "16-agent-nonzero").glob("pass-simple__*"))
    return Path(shutil.copytree(original, tmp_path / "job" / original.name))


def test_totals_are_of_the_trials_that_count_and_say_how_many_do_not(
    proctor: Proctor, trial: Path, tmp_path: Path
) -> None:
    kept = trial / "attempts" / "1"
    shutil.copytree(trial, kept, ignore=shutil.ignore_patterns("attempts"))
    aside = trial.parent / "aside__1"
    shutil.copytree(trial, aside, ignore=shutil.ignore_patterns("attempts"))
    state = {"unplanned": [{"trial": "aside__1"}]}
    (trial.parent / "proctor.json").write_text(json.dumps(state))
    (trial.parent / "result.json").write_text("{}")
    for command in ("summary", "classify"):
        found = json.loads(proctor("trace", command, trial.parent, "--json").out)
        assert len(found["trials"]) == 1
        assert found["left_out"] == {"begun again": 1, "set aside": 1}
    said = "not counted: 1 set aside, 1 restarted"
    assert said in proctor("trace", "summary", trial.parent).out
    imported = ("--ledger", tmp_path / "sealed")
    assert proctor("ledger", "seal", trial, "--experiment", "night", *imported).code == 0
    for command in ("summary", "classify"):
        found = json.loads(proctor("trace", command, "night", "--json", *imported).out)
        assert (len(found["trials"]), found["left_out"]) == (1, {"begun again": 1})
        named = f"night/{trial.name}.attempt-1"
        found = json.loads(proctor("trace", command, named, "--json", *imported).out)
        assert (len(found["trials"]), found["left_out"]) == (1, {})
