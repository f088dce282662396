"""The JSON files of a job: what is read of them, and the sentence when they cannot be."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import JobError
from proctor.harbor.documents import JOB, JOB_CONFIG, LOCK, TRIAL, AgentConfig, TrialDocument
from tests.harbor.written import trial_result
from tests.unprivileged import unprivileged


def load(directory: Path, value: object) -> TrialDocument:
    path = directory / "result.json"
    path.write_text(json.dumps(value))
    return TRIAL.load(str(path))


def refusal(path: Path) -> str:
    """What the decoder says of a file, without the path it starts with."""
    with pytest.raises(JobError) as caught:
        TRIAL.load(str(path))
    start = f"{path}: "
    assert str(caught.value).startswith(start)
    return str(caught.value).removeprefix(start)


def test_numbers_keep_the_type_they_are_written_with(tmp_path: Path) -> None:
    rewards = {"int": 1, "float": 1.0, "null": None, "large": 10**400, "minus": -0.0}
    document = load(tmp_path, trial_result("a__1", verifier_result={"rewards": rewards}))
    assert document.verifier_result is not None
    assert repr(document.verifier_result.rewards) == repr(rewards)


def test_a_cost_written_as_a_whole_number_is_a_float(tmp_path: Path) -> None:
    document = load(tmp_path, trial_result("a__1", agent_result={"cost_usd": 2}))
    assert document.agent_result is not None
    assert repr(document.agent_result.cost_usd) == "2.0"


def test_keys_of_a_later_harbor_are_skipped_wherever_they_stand(tmp_path: Path) -> None:
    later: dict[str, Any] = trial_result("a__1", new={"deep": [1, {}]})
    later["config"]["later"] = later["agent_info"]["later"] = ["x"]
    later["verifier_result"]["later"] = None
    document = load(tmp_path, later)
    assert (document.trial_name, document.agent_info.name) == ("a__1", "ag")


def test_only_three_keys_are_needed(tmp_path: Path) -> None:
    least = {"task_name": "a", "trial_name": "a__1", "agent_info": {"name": "ag"}}
    document = load(tmp_path, least)
    assert (document.source, document.step_results, document.exception_info) == (None, None, None)
    assert document.config.verifier.disable is False
    assert document.config.agent == AgentConfig()


@pytest.mark.parametrize("missing", ["task_name", "trial_name", "agent_info"])
def test_a_missing_key_is_named(tmp_path: Path, missing: str) -> None:
    document = trial_result("a__1")
    del document[missing]
    with pytest.raises(JobError, match=f"missing required field `{missing}`"):
        load(tmp_path, document)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"task_name": 1}, "$.task_name"),
        ({"verifier_result": {"rewards": {"a": "1"}}}, "$.verifier_result.rewards[...]"),
        ({"verifier_result": {"rewards": {"a": True}}}, "$.verifier_result.rewards[...]"),
        ({"verifier_result": []}, "$.verifier_result"),
        ({"step_results": [{}]}, "$.step_results[0]"),
        ({"agent_result": {"n_input_tokens": 1.5}}, "$.agent_result.n_input_tokens"),
    ],
)
def test_a_value_of_another_type_is_placed(
    tmp_path: Path, changes: dict[str, Any], place: str
) -> None:
    with pytest.raises(JobError, match=r"result\.json: not as harbor writes it: ") as caught:
        load(tmp_path, trial_result("a__1", **changes))
    assert f"`{place}`" in str(caught.value)


GOOD = json.dumps(trial_result("a__1")).encode()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(GOOD[:-1], id="torn"),
        pytest.param(GOOD[: len(GOOD) // 2], id="half"),
        pytest.param(b"\0" * 4096, id="zeros after a crash"),
        pytest.param(b"\xef\xbb\xbf" + GOOD, id="byte order mark"),
        pytest.param(GOOD + b"\0", id="NUL at the end"),
        pytest.param(GOOD + GOOD, id="written twice"),
        pytest.param(GOOD.decode().encode("utf-16"), id="UTF-16"),
        pytest.param(GOOD.replace(b"a__1", b"a\xff1"), id="not UTF-8"),
        pytest.param(GOOD.replace(b'"a__1"', b'"\\ud800"'), id="half a surrogate pair"),
        pytest.param(GOOD[:-1] + b',"x":' + b"[" * 100_000, id="deeply nested"),
        pytest.param(b'{"x":' * 100_000, id="deeply nested objects"),
    ],
)
def test_what_is_not_json_is_torn(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(data)
    assert refusal(path).startswith("torn or not JSON: ")


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', "{}"])
def test_json_that_is_no_trial_is_not_as_harbor_writes_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    assert refusal(path).startswith("not as harbor writes it: ")


def test_a_number_of_5000_digits_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(GOOD.replace(b'{"reward": 1.0}', b'{"reward": ' + b"7" * 5000 + b"}"))
    assert "out of range - at `$.verifier_result.rewards[...]`" in refusal(path)


def test_a_missing_file_cannot_be_read(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == "cannot be read: No such file or directory"


def test_a_directory_in_place_of_the_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    assert refusal(tmp_path / "result.json") == "cannot be read: Is a directory"


def test_a_loop_of_links_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert refusal(tmp_path / "a") == "cannot be read: Too many levels of symbolic links"


def test_a_file_larger_than_any_honest_one_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "result.json").open("wb") as file:
        file.truncate(1 << 29)
    assert refusal(tmp_path / "result.json") == "cannot be read: larger than 256 MiB"


def test_an_endless_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "result.json").symlink_to("/dev/zero")
    leads_out = "cannot be read: a link that leads out of the directory, not followed"
    assert refusal(tmp_path / "result.json") == leads_out


@pytest.mark.parametrize("writing", [False, True])
def test_nobody_waits_for_a_pipe(tmp_path: Path, writing: bool) -> None:
    pipe = tmp_path / "result.json"
    os.mkfifo(pipe)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(refusal(pipe)), daemon=True)
    # Opened for both, a pipe needs nobody at its other end.
    writer = os.open(pipe, os.O_RDWR) if writing else None
    reader.start()
    reader.join(timeout=20)
    if writer is not None:
        os.close(writer)
    assert len(said) == 1


def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "result.json").write_bytes(GOOD)
    (tmp_path / "result.json").chmod(0)
    monkeypatch.chdir(tmp_path)
    with unprivileged():
        said = refusal(Path("result.json"))
    assert said == "cannot be read: Permission denied"


# The files of the job as a whole


def test_the_stats_of_a_job_are_kept_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"n_total_trials": 2, "stats": {"b" : [ 1.0, NaN_ ] }}'.replace("NaN_", "1"))
    document = JOB.load(str(path))
    assert bytes(document.stats) == b'{"b" : [ 1.0, 1 ] }'
    assert (document.n_total_trials, document.finished_at) == (2, None)


def test_a_job_result_without_stats_is_none(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"n_total_trials": 2}')
    with pytest.raises(JobError, match="missing required field `stats`"):
        JOB.load(str(path))


def test_a_config_and_a_lock_say_nothing_until_they_do(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    config, lock = JOB_CONFIG.load(str(path)), LOCK.load(str(path))
    assert (config.metrics, config.datasets, config.n_attempts) == ([], [], None)
    assert (lock.trials, lock.harbor.version) == ([], None)


def test_what_a_config_asks_for_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    metrics = [{"type": "max"}, {"kwargs": {"script_path": "m.py"}}]
    datasets = [{"path": "tasks/a"}, {"name": "org/b", "ref": "1"}]
    path.write_text(json.dumps({"n_attempts": 3, "metrics": metrics, "datasets": datasets}))
    config = JOB_CONFIG.load(str(path))
    assert [metric.type for metric in config.metrics] == ["max", "mean"]
    assert config.metrics[1].kwargs == {"script_path": "m.py"}
    assert [(item.path, item.name) for item in config.datasets] == [
        ("tasks/a", None),
        (None, "org/b"),
    ]
    assert config.n_attempts == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "torn or not JSON: "),
        ('{"trials": [{]}', "torn or not JSON: "),
        ('{"trials": [{"task": []}]}', "not as harbor writes it: "),
        ('{"trials": {}}', "not as harbor writes it: "),
    ],
)
def test_a_lock_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "lock.json"
    path.write_text(text)
    with pytest.raises(JobError) as caught:
        LOCK.load(str(path))
    assert str(caught.value).startswith(f"{path}: {said}")


def test_what_a_lock_plans_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    task = {"name": "a", "git_url": "u", "path": "p", "source": "ds"}
    trial = {"task": task, "agent": {"name": "ag", "kwargs": {"x": [1]}}}
    other = {"task": {"name": "b"}}
    trials = [trial, other, trial]
    about = {"harbor": {"version": "0.13.1"}, "schema_version": 1, "n_concurrent_trials": 4}
    path.write_text(json.dumps({**about, "trials": trials}))
    lock = LOCK.load(str(path))
    planned, second, third = lock.trials
    assert (second.task.name, second.agent, third) == ("b", AgentConfig(), planned)
    assert (planned.task.name, planned.task.path) == ("a", "p")
    assert (planned.task.git_url, planned.task.source) == ("u", "ds")
    assert (planned.agent.name, planned.agent.kwargs) == ("ag", {"x": [1]})
    assert lock.harbor.version == "0.13.1"
    assert (lock.schema_version, lock.n_concurrent_trials) == (1, 4)
