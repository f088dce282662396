"""One job directory: what is salvaged of a damaged one, and what is said of one that is none."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import JobError
from proctor.harbor.job import Job, OrderBasis, load_job
from proctor.reward.profile import HARBOR_0_25
from tests.audit.directories import write_json
from tests.harbor.written import trial_result, write_lock, write_result, write_trial
from tests.unprivileged import unprivileged


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A finished job of two trials."""
    directory = tmp_path / "jobs" / "my__job"
    for name in ("a__1", "b__1"):
        write_trial(directory, name)
    write_json(directory / "config.json", {"n_attempts": 1})
    write_lock(directory, ["b", "a"])
    names = ["b__1", "a__1"]
    write_result(directory, {"ag__ds": {"reward_stats": {"reward": {"1.0": names}}}})
    return directory


def names(found: Job) -> list[str]:
    return [trial.trial.name for trial in found.trials]


def refusal(directory: Path) -> str:
    """Why a directory is no job, without the path that the sentence starts with."""
    with pytest.raises(JobError) as caught:
        load_job(str(directory))
    start = f"{directory}: "
    assert str(caught.value).startswith(start)
    return str(caught.value).removeprefix(start)


def test_a_job_is_its_trials_in_order_and_its_three_files(job: Path) -> None:
    found = load_job(str(job))
    assert names(found) == ["b__1", "a__1"]
    assert (found.name, found.directory) == ("my__job", str(job))
    assert (found.finished, found.ordered.basis) == (True, OrderBasis.PLAN)
    assert found.config is not None
    assert found.lock is not None
    assert found.published is not None
    assert (found.unfinished, found.broken, found.problems) == ([], [], [])


def test_a_trailing_slash_or_a_relative_path_changes_no_name(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_job(f"{job}/").name == "my__job"
    monkeypatch.chdir(job)
    assert load_job(".").name == "my__job"


def test_the_profile_is_that_of_the_reward_files(job: Path) -> None:
    (job / "a__1" / "verifier" / "reward.txt").write_text("nan")
    errors = [trial.trial.exception for trial in load_job(str(job), HARBOR_0_25).trials]
    assert errors == [None, "VerifierOutputParseError"]


def test_an_unfinished_job_is_in_the_order_its_trials_ended(job: Path) -> None:
    write_result(job, {}, finished_at=None)
    late = {"finished_at": "2025-01-02T09:00:00Z"}
    write_json(job / "a__1" / "result.json", trial_result("a__1", **late))
    found = load_job(str(job))
    assert (found.finished, found.ordered.basis) == (False, OrderBasis.FINISHED)
    assert names(found) == ["b__1", "a__1"]


def test_who_watches_is_told_of_every_five_hundredth_trial_and_the_last(tmp_path: Path) -> None:
    for number in range(1001):
        (tmp_path / f"{number:04}").mkdir()
    write_trial(tmp_path, "a__1")
    told: list[tuple[int, int]] = []
    load_job(str(tmp_path), watch=lambda done, total: told.append((done, total)))
    assert told == [(500, 1002), (1000, 1002), (1002, 1002)]


# What is planned


def test_what_was_planned_comes_from_the_best_source_there_is(job: Path) -> None:
    write_result(job, {}, n_total_trials=9)
    assert load_job(str(job)).n_planned == 9
    (job / "result.json").unlink()
    write_lock(job, ["a", "b", "c"])
    assert load_job(str(job)).n_planned == 3
    (job / "lock.json").unlink()
    killed = job / "c__1"
    killed.mkdir()
    (killed / "trial.log").touch()
    write_trial(job, "d__1")
    (job / "d__1" / "result.json").write_text("{")
    assert load_job(str(job)).n_planned == 4


def test_attempts_are_as_planned_or_as_found_if_more(job: Path) -> None:
    a, b = ("ag__ds", "a"), ("ag__ds", "b")
    write_trial(job, "a__2")
    (job / "config.json").unlink()
    assert load_job(str(job)).attempts() == {a: 2, b: 1}
    write_json(job / "config.json", {})
    assert load_job(str(job)).attempts() == {a: 2, b: 1}
    write_json(job / "config.json", {"n_attempts": 1})
    assert load_job(str(job)).attempts() == {a: 2, b: 1}
    write_json(job / "config.json", {"n_attempts": 3})
    assert load_job(str(job)).attempts() == {a: 3, b: 3}


def test_attempts_are_counted_by_group(job: Path) -> None:
    info: dict[str, Any] = {"name": "ag", "model_info": {"name": "m"}}
    write_trial(job, "a__2", agent_info=info)
    write_trial(job, "a__3", agent_info=info)
    write_trial(job, "a__4", agent_info={"name": "other"})
    groups = [("ag__ds", "a"), ("ag__ds", "b"), ("ag__m__ds", "a"), ("other__ds", "a")]
    attempts = load_job(str(job)).attempts()
    assert [attempts[group] for group in groups] == [1, 1, 2, 1]


# What is salvaged


@pytest.mark.parametrize("part", ["result.json", "config.json", "lock.json"])
def test_a_missing_file_of_the_job_is_no_problem(job: Path, part: str) -> None:
    (job / part).unlink()
    found = load_job(str(job))
    assert sorted(names(found)) == ["a__1", "b__1"]
    assert found.problems == []


@pytest.mark.parametrize("part", ["result.json", "config.json", "lock.json"])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\0\0", b"\xef\xbb\xbf{}", b"[" * 10**5])
def test_a_broken_file_of_the_job_is_a_problem_and_the_trials_stay(
    job: Path, part: str, data: bytes
) -> None:
    (job / part).write_bytes(data)
    found = load_job(str(job))
    assert sorted(names(found)) == ["a__1", "b__1"]
    (problem,) = found.problems
    assert problem.path == f"{job}/{part}"
    assert problem.message.startswith(f"{job}/{part}: ")
    loaded = {"result.json": found.published, "config.json": found.config, "lock.json": found.lock}
    assert [name for name, value in loaded.items() if value is None] == [part]


def test_a_job_result_whose_stats_are_nonsense_is_a_problem(job: Path) -> None:
    write_result(job, {}, stats=[])
    found = load_job(str(job))
    (problem,) = found.problems
    assert problem.message == f"{job}/result.json: stats is a JSON list; expected an object"
    assert not found.finished


def test_a_file_of_the_job_that_dangles_or_loops_is_a_problem(job: Path) -> None:
    (job / "lock.json").unlink()
    (job / "lock.json").symlink_to("nowhere")
    (job / "config.json").unlink()
    (job / "config.json").symlink_to("config.json")
    (job / "result.json").unlink()
    (job / "result.json").symlink_to("/dev/zero")
    assert [problem.message for problem in load_job(str(job)).problems] == [
        f"{job}/result.json: cannot be read: a link that leads out of the directory, not followed",
        f"{job}/config.json: cannot be read: Too many levels of symbolic links",
        f"{job}/lock.json: cannot be read: No such file or directory",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "torn or not JSON: "),
        (b'{"task_name": "a"', "torn or not JSON: "),
        (b"{}", "not as harbor writes it: "),
        (b"\xff\xfe", "torn or not JSON: "),
    ],
)
def test_a_trial_that_cannot_be_read_is_broken_and_the_others_stay(
    job: Path, data: bytes, message: str
) -> None:
    (job / "a__1" / "result.json").write_bytes(data)
    found = load_job(str(job))
    assert names(found) == ["b__1"]
    (problem,) = found.broken
    assert problem.path == str(job / "a__1")
    assert problem.message.startswith(f"{job}/a__1/result.json: {message}")
    assert found.unfinished == []


def test_a_trial_result_that_is_no_file_is_broken(job: Path) -> None:
    paths = [job / name / "result.json" for name in ("c__1", "d__1", "e__1", "f__1", "g__1")]
    for path in paths:
        path.parent.mkdir()
    paths[0].mkdir()
    paths[1].symlink_to("result.json")
    paths[2].symlink_to("nowhere")
    paths[3].symlink_to("/dev/zero")
    os.mkfifo(paths[4])
    found = load_job(str(job))
    said = [problem.message.partition("result.json: ")[2] for problem in found.broken]
    assert said[:4] == [
        "cannot be read: Is a directory",
        "cannot be read: Too many levels of symbolic links",
        "cannot be read: No such file or directory",
        "cannot be read: a link that leads out of the directory, not followed",
    ]
    assert len(said) == 5
    assert sorted(names(found)) == ["a__1", "b__1"]


@pytest.mark.parametrize("left", ["config.json", "trial.log"])
def test_a_trial_directory_without_a_result_is_unfinished(job: Path, left: str) -> None:
    (job / "c__1").mkdir()
    (job / "c__1" / left).touch()
    found = load_job(str(job))
    assert found.unfinished == [str(job / "c__1")]
    assert found.broken == []


def test_other_files_and_directories_are_none_of_ours(job: Path) -> None:
    (job / ".harbor-upload").mkdir()
    (job / "notes" / "more").mkdir(parents=True)
    (job / "job.log").touch()
    (job / "loop").symlink_to("loop")
    (job / "dangling").symlink_to("nowhere")
    (job / "odd \udcff name").touch()
    found = load_job(str(job))
    assert sorted(names(found)) == ["a__1", "b__1"]
    assert (found.unfinished, found.broken, found.problems) == ([], [], [])


@pytest.mark.parametrize("target", [".", "..", "/"])
def test_a_link_back_to_the_job_or_around_it_is_no_trial(job: Path, target: str) -> None:
    (job / "again").symlink_to(target)
    found = load_job(str(job))
    assert sorted(names(found)) == ["a__1", "b__1"]
    assert found.broken == []


@pytest.mark.parametrize("place", ["elsewhere", "my__job/c__1"])
def test_a_link_to_a_trial_elsewhere_is_broken_and_not_followed(
    job: Path, tmp_path: Path, place: str
) -> None:
    (job / "b__1").rename(job.parent / place)
    (job / "b__1").symlink_to(job.parent / place)
    found = load_job(str(job))
    assert "b__1" not in [Path(each.directory).name for each in found.trials]
    (problem,) = found.broken
    assert (problem.path, problem.is_linked) == (str(job / "b__1"), True)
    assert "a link to a trial elsewhere, not followed" in problem.message


def test_one_corrupt_trial_of_a_thousand_costs_one(tmp_path: Path) -> None:
    for number in range(1000):
        write_trial(tmp_path, f"a__{number:04}")
    path = tmp_path / "a__0500" / "result.json"
    path.write_bytes(path.read_bytes()[:100])
    found = load_job(str(tmp_path))
    assert len(found.trials) == 999
    assert [problem.path for problem in found.broken] == [str(tmp_path / "a__0500")]
    assert found.n_planned == 1000


def test_only_remains_of_trials_are_still_a_job(tmp_path: Path) -> None:
    (tmp_path / "a__1").mkdir()
    (tmp_path / "a__1" / "trial.log").touch()
    assert load_job(str(tmp_path)).unfinished == [str(tmp_path / "a__1")]
    (tmp_path / "a__1" / "result.json").write_text("{")
    assert [problem.path for problem in load_job(str(tmp_path)).broken] == [str(tmp_path / "a__1")]


@pytest.mark.parametrize("part", ["result.json", "config.json", "lock.json"])
def test_a_job_that_never_got_to_a_trial_is_a_job(job: Path, part: str) -> None:
    kept = (job / part).read_bytes()
    shutil.rmtree(job)
    job.mkdir()
    (job / part).write_bytes(kept)
    found = load_job(str(job))
    assert (found.trials, found.broken, found.unfinished) == ([], [], [])


# What is no job


def test_a_missing_directory_is_no_job(tmp_path: Path) -> None:
    said = refusal(tmp_path / "none")
    assert said == "no such directory; expected a Harbor job directory"


def test_a_file_is_no_job(job: Path) -> None:
    assert refusal(job / "result.json") == (
        "this is a file; expected a Harbor job directory "
        "(the one that holds result.json, config.json and one directory a trial)"
    )


def test_a_job_of_own_runner_is_named(tmp_path: Path) -> None:
    (tmp_path / "trials" / "a__attempt-0").mkdir(parents=True)
    (tmp_path / "trials" / "a__attempt-0" / "result.json").write_text('{"score": 1.0}')
    (tmp_path / "lock.json").write_text('{"n_attempts": 1, "max_retries": 0}')
    assert refusal(tmp_path).startswith("a job directory of own_runner (1 trial in trials/, ")


def test_an_empty_directory_is_no_job(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "empty directory; expected a Harbor job directory"


def test_a_loop_of_links_is_no_job(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert refusal(tmp_path / "loop") == "cannot be read: Too many levels of symbolic links"


def test_a_directory_of_something_else_is_no_job(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert refusal(tmp_path) == (
        "not a Harbor job directory: no result.json, config.json or lock.json "
        "and no directory of a trial"
    )


def test_what_proctor_init_makes_is_no_trial(tmp_path: Path) -> None:
    for name in ("agent", "tasks", "ledger", "jobs"):
        (tmp_path / name).mkdir()
    assert refusal(tmp_path).startswith("not a Harbor job directory")


@pytest.mark.parametrize("left", ["trial.log", "verifier"])
def test_a_trial_is_no_job_and_the_job_around_it_is_named(job: Path, left: str) -> None:
    trial = job / "a__1"
    (trial / "trial.log").touch()
    if left == "verifier":
        (trial / "trial.log").unlink()
    else:
        shutil.rmtree(trial / "verifier")
    assert refusal(trial) == f"this is one trial; expected the job directory around it ({job})"


def test_a_directory_of_jobs_is_no_job_and_one_of_them_is_named(job: Path) -> None:
    shutil.copytree(job, job.parent / "other")
    (job.parent / "other" / "result.json").unlink()
    assert refusal(job.parent) == (
        f"holds 2 job directories, not one job; name the job, for example {job}"
    )


# What may not be read


def test_what_may_not_be_read_is_named_and_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    job = Path("job")
    for name in ("a__1", "b__1", "c__1", "d__1"):
        write_trial(job, name)
    write_json(job / "config.json", {})
    locked = ["config.json", "a__1/result.json", "b__1/verifier/reward.txt", "c__1"]
    for name in locked:
        (job / name).chmod(0)
    with unprivileged():
        found = load_job("job")
    exceptions = [(trial.trial.name, trial.trial.exception) for trial in found.trials]
    assert exceptions == [("b__1", "PermissionError"), ("d__1", None)]
    assert [problem.message for problem in [*found.problems, *found.broken]] == [
        "job/config.json: cannot be read: Permission denied",
        "job/a__1/result.json: cannot be read: Permission denied",
        "job/c__1/result.json: cannot be read: Permission denied",
    ]
    job.chmod(0)
    with unprivileged():
        said = refusal(job)
    assert said == "cannot be read: Permission denied"
    for path in (job, *(job / name for name in locked)):
        path.chmod(0o755)
