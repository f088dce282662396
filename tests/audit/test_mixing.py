"""Which jobs make one honest number, and how the others are refused by name."""

from pathlib import Path

import pytest

from proctor.audit.mixing import check_mixable
from proctor.errors import MixedJobsError
from proctor.harbor.job import Job, load_job
from tests.audit.directories import (
    copy_job,
    edit_config,
    edit_json,
    find_trial,
    make_job,
    read_json,
    write_json,
)


def load(*paths: Path) -> list[Job]:
    return [load_job(str(path)) for path in paths]


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    """Two jobs that may be scored as one."""
    return [make_job(tmp_path / name, {"a": ["1"], "b": ["0"]}) for name in ("one", "two")]


def test_equal_jobs_may_be_mixed(pair: list[Path]) -> None:
    check_mixable(load(*pair))


def test_one_job_is_never_a_mixture(tmp_path: Path) -> None:
    check_mixable(load(make_job(tmp_path / "uneven", {"a": ["1"], "b": ["0", "1"]})))


@pytest.mark.parametrize("allow_mixed", [False, True])
def test_the_same_job_twice_is_always_refused(pair: list[Path], allow_mixed: bool) -> None:
    with pytest.raises(MixedJobsError, match=r"the same trial is in more than one job: a__one1 in"):
        check_mixable(load(pair[0], pair[0]), allow_mixed=allow_mixed)


def test_a_copy_of_a_job_is_the_same_job(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    jobs = [copy_job("01-binary-oracle-k1", where) for where in (tmp_path, tmp_path / "copy")]
    with pytest.raises(MixedJobsError, match=r"oracle-wrong__2j385Vz in .*/copy/01-binary"):
        check_mixable(load(*jobs), allow_mixed=True)


def test_uneven_attempts_are_refused_by_name(pair: list[Path], tmp_path: Path) -> None:
    third = make_job(tmp_path / "three", {"a": ["1"]})
    with pytest.raises(MixedJobsError, match=r"more attempts than the 2 .*: a \(3\)\. Together"):
        check_mixable(load(*pair, third))
    check_mixable(load(*pair, third), allow_mixed=True)


def test_another_agent_at_some_of_the_tasks_is_no_uneven_attempt(tmp_path: Path) -> None:
    whole = make_job(tmp_path / "whole", {"a": ["1"], "b": ["0"]})
    part = make_job(tmp_path / "part", {"a": ["1"]})
    for path in part.glob("*/result.json"):
        edit_json(path, lambda trial: trial["agent_info"].update(name="other"))
    check_mixable(load(whole, part))


def test_attempts_count_as_planned_when_a_trial_is_lost(tmp_path: Path) -> None:
    """A job that lost an attempt was still given as many: the union is even."""
    whole = make_job(tmp_path / "whole", {"a": ["1", "0"], "b": ["0", "0"]})
    config = {"n_attempts": 2, "metrics": []}
    lost = make_job(tmp_path / "lost", {"a": ["1"], "b": ["0", "1"]}, config=config)
    check_mixable(load(whole, lost))


def test_differing_tasks_are_refused_by_name(pair: list[Path]) -> None:
    for job in pair:
        document = find_trial(job, "b") / "result.json"
        edit_json(document, lambda trial: trial.update(task_checksum=trial["trial_name"]))
    with pytest.raises(MixedJobsError, match=r"tasks whose content differs between jobs: b\."):
        check_mixable(load(*pair))
    check_mixable(load(*pair), allow_mixed=True)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (None, "timeout_multiplier"),
        (None, "agent_timeout_multiplier"),
        ("agent", "override_timeout_sec"),
        ("verifier", "max_timeout_sec"),
        ("environment", "override_cpus"),
    ],
)
def test_differing_limits_are_refused_by_name(
    pair: list[Path], part: str | None, name: str
) -> None:
    def change(config: dict[str, dict[str, float]]) -> None:
        target = config.setdefault(part, {}) if part else config
        target.update({name: 4.0})  # type: ignore[dict-item]

    edit_config(find_trial(pair[0], "a"), change)
    where = rf"a \({part + '.' if part else ''}{name}: 4\.0, None\)"
    with pytest.raises(MixedJobsError, match=rf"tasks whose limits differ between jobs: {where}"):
        check_mixable(load(*pair))
    check_mixable(load(*pair), allow_mixed=True)


def test_all_reasons_are_given_at_once_and_long_lists_shortened(tmp_path: Path) -> None:
    few = make_job(tmp_path / "few", {"z": ["1"]})
    many = make_job(tmp_path / "many", {task: ["1", "0"] for task in "abcde"})
    with pytest.raises(MixedJobsError, match=r"a \(2\), b \(2\), c \(2\) and 2 more\. Together"):
        check_mixable(load(few, many))


def test_jobs_without_trials_may_be_mixed(tmp_path: Path) -> None:
    check_mixable(load(*(make_job(tmp_path / name, {}) for name in ("one", "two"))))


def test_tasks_of_one_name_from_two_datasets_may_differ(pair: list[Path]) -> None:
    for job in pair:
        trial = find_trial(job, "b")
        document = read_json(trial / "result.json")
        content = {"source": job.name, "task_checksum": job.name}
        write_json(trial / "result.json", document | content)
    edit_config(find_trial(pair[0], "b"), lambda config: config.update(timeout_multiplier=2.0))
    check_mixable(load(*pair))
