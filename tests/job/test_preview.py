"""What a job would do, without doing it."""

import asyncio
from pathlib import Path

import pytest

from proctor.errors import LedgerError
from proctor.job.job import run_job
from proctor.job.options import JobOptions, LedgerOptions, ResumeOptions
from proctor.job.preview import Preview, preview_resume, preview_run
from proctor.job.resume import SlotAction
from proctor.job.watch import Watch
from tests.job.jobs import agent, load_json, make_config, make_tasks, run, trial_dirs


def preview(directory: Path) -> Preview:
    return asyncio.run(preview_resume(directory, ResumeOptions()))


def test_a_new_job_would_run_everything_and_nothing_is_written(tmp_path: Path) -> None:
    dataset = make_tasks(tmp_path / "set", ["a", "b"])
    (dataset / "bad" / "environment").mkdir(parents=True)
    (dataset / "bad" / "task.toml").write_text("?", encoding="utf-8")
    config = make_config(dataset, tmp_path / "jobs", n_attempts=2)
    shown = asyncio.run(preview_run(JobOptions(config=config, environment_why="asked for")))
    assert [decision.slot.planned.name for decision in shown.decisions] == ["a", "b", "a", "b"]
    assert shown.count(SlotAction.RUN) == 4
    assert [refused.name for refused in shown.refused] == ["bad"]
    assert (shown.environment.kind, shown.environment.why) == ("null", "asked for")
    assert not shown.is_begun
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("place", "remedy"),
    [("ledger", "a local disk, and copy it"), (f"proctor/ledgers/{'0' * 32}", "XDG_STATE_HOME")],
)
def test_a_job_is_refused_if_its_ledger_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, remedy: str
) -> None:
    monkeypatch.setattr("proctor.ledger.lock.find_network", {tmp_path / place: "nfs4"}.get)
    config = make_config(make_tasks(tmp_path / "set", ["a"]), tmp_path / "jobs")
    options = JobOptions(config=config, ledger=LedgerOptions(tmp_path / place))
    with pytest.raises(LedgerError, match=f"on nfs4, a network file system; .*{remedy}"):
        asyncio.run(run_job(options, Watch()))
    # Nothing is written by what only shows.
    asyncio.run(preview_run(options))


def test_each_slot_says_what_would_be_done_and_why(tmp_path: Path) -> None:
    dataset = make_tasks(tmp_path / "set", ["a", "b", "c", "d", "e"])
    directory = run(make_config(dataset, tmp_path / "jobs")).directory
    kept, torn, killed, gone, changed = trial_dirs(directory)
    (torn / "result.json").write_text('{"id": ', encoding="utf-8")
    (killed / "result.json").unlink()
    gone.rename(tmp_path / "elsewhere")
    (dataset / "e" / "instruction.md").write_text("Do it otherwise.\n", encoding="utf-8")
    before = sorted(directory.glob("**/*"))
    shown = preview(directory)
    assert sorted(directory.glob("**/*")) == before
    deeds = [(decision.deed, decision.why) for decision in shown.decisions]
    assert deeds[0] == (SlotAction.KEEP, "it has a result")
    assert deeds[1][0] is SlotAction.REDO
    assert "torn or not JSON" in deeds[1][1]
    assert deeds[2] == (SlotAction.REDO, "it was stopped before it had a result")
    assert deeds[3] == (SlotAction.RUN, "not started yet")
    assert deeds[4] == (SlotAction.RUN, "not started yet")
    assert [decision.trial for decision in shown.decisions[:4]] == [
        path.name for path in (kept, torn, killed, gone)
    ]
    assert shown.decisions[4].trial != changed.name
    assert shown.unplanned == [changed.name]
    assert shown.is_begun


def test_types_that_are_to_be_run_again_are_named(tmp_path: Path) -> None:
    dataset = make_tasks(tmp_path / "set", ["a"])
    directory = run(
        make_config(dataset, tmp_path / "jobs", agents=[agent("Flaky", fails=9)])
    ).directory
    options = ResumeOptions(also=frozenset({"ConnectionError"}))
    shown = asyncio.run(preview_resume(directory, options))
    assert [(one.deed, one.why) for one in shown.decisions] == [
        (SlotAction.REDO, "it ended in ConnectionError")
    ]
    assert preview(directory).count(SlotAction.KEEP) == 1
    assert load_json(directory / "result.json")["stats"]["n_errored_trials"] == 1
