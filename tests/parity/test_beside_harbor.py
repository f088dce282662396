"""The same tasks at the same time: the real harbor beside proctor, on this machine."""

from pathlib import Path

from tests.parity.beside import run_theirs
from tests.parity.facts import load_facts, load_groups
from tests.parity.theirs import Harbor


def test_every_trial_and_figure_is_as_harbor_has_it(
    harbor: Harbor, all_tasks: Path, our_job: Path, tmp_path: Path
) -> None:
    run_theirs(harbor, "-c", all_tasks, jobs=tmp_path)
    their_job = tmp_path / "job"
    assert load_facts(their_job) == load_facts(our_job)
    assert load_groups(their_job) == load_groups(our_job)
