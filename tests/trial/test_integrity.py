"""What a reader of a score should know, found before and after verification."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from proctor.harbor.trial import load_trial
from proctor.harbor.trial_result import TrialResult
from proctor.reward.profile import DEFAULT_PROFILE
from proctor.trial.agent import AgentContext
from proctor.trial.clock import Clock
from proctor.trial.environment import Environment, EnvironmentOrder
from proctor.trial.finding import Finding, FindingCode
from tests.trial.rooms import MountedEnvironment, PlainEnvironment, WatchedEnvironment
from tests.trial.stage import Stage, load_findings, make_spec, paths_of, run_inside, write_task

FAILING = "#!/bin/bash\ntest -e /tests/planted && echo 1 > /logs/verifier/reward.txt\n"
FAILING += "[ -e /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt\n"
PLANT = "echo '{\"reward\": 1}' > /logs/verifier/reward.json; mkdir -p /tests; touch /tests/planted"


def run(stage: Stage) -> TrialResult:
    return asyncio.run(stage.run())


def findings_of(stage: Stage) -> list[dict[str, object]]:
    return load_findings(stage.spec)


@pytest.mark.parametrize("kind", [PlainEnvironment, MountedEnvironment, WatchedEnvironment])
def test_what_was_planted_counts_for_nothing_and_is_found(
    tmp_path: Path, kind: type[PlainEnvironment]
) -> None:
    task = write_task(tmp_path / "task", {"tests/test.sh": FAILING})
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside(PLANT), kind)
    result = run(stage)
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 0.0}
    found = findings_of(stage)
    assert [finding["code"] for finding in found] == ["reward-planted", "tests-planted"]
    detail = found[0]["detail"]
    assert isinstance(detail, dict)
    assert detail["files"][0]["path"] == "/logs/verifier/reward.json"
    assert detail["files"][0]["size"] == 14
    assert len(detail["files"][0]["sha256"]) == 64


@pytest.mark.parametrize("kind", [PlainEnvironment, MountedEnvironment, WatchedEnvironment])
def test_with_harbors_compatibility_what_was_planted_counts(
    tmp_path: Path, kind: type[PlainEnvironment]
) -> None:
    task = write_task(tmp_path / "task", {"tests/test.sh": FAILING})
    spec = make_spec(task, tmp_path / "jobs", compatible=True)
    stage = Stage(spec, run_inside(PLANT), kind)
    result = run(stage)
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1}
    assert [each["code"] for each in findings_of(stage)] == ["two-rewards"]


def test_strange_names_and_many_files_are_listed_without_harm(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task")
    command = "mkdir -p /tests/d; touch $'/tests/d/a\\nb\\tc'; mkfifo /tests/pipe; "
    command += "ln -s /dev/zero /tests/endless; touch /logs/verifier/{1..300}"
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside(command), PlainEnvironment)
    result = run(stage)
    assert result.exception_info is None
    (finding,) = findings_of(stage)
    assert finding["message"] == (
        "100 files or more existed in /logs/verifier before the verifier started"
    )


def test_a_process_that_the_agent_left_is_found(tmp_path: Path) -> None:
    command = "setsid sleep 299 >/dev/null 2>&1 & until pgrep -f 'sleep 299'; do :; done"
    stage = Stage(make_spec(write_task(tmp_path / "task"), tmp_path / "jobs"), run_inside(command))
    result = run(stage)
    assert result.exception_info is None
    (finding,) = findings_of(stage)
    assert finding["code"] == "agent-still-busy"
    assert finding["phase"] == "verify"
    shown = json.dumps(finding["detail"])
    for word in ('"command": "sleep 299"', '"executable"', '"script"', '"listens"'):
        assert word in shown


def test_tests_that_change_their_own_files_are_found_and_caches_are_not(tmp_path: Path) -> None:
    test = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\nmkdir /tests/__pycache__\n"
    test += "touch /tests/__pycache__/x.pyc\necho changed >> /tests/data.txt\nrm /tests/gone.txt\n"
    files = {"tests/test.sh": test, "tests/data.txt": "x", "tests/gone.txt": "y", "tests/ok": "z"}
    stage = Stage(make_spec(write_task(tmp_path / "task", files), tmp_path / "jobs"))
    run(stage)
    (finding,) = findings_of(stage)
    assert finding["code"] == "tests-changed"
    assert finding["detail"] == {"files": ["data.txt", "gone.txt"]}


def test_tests_that_change_on_the_host_are_found(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task")

    async def meddle(environment: Environment, context: AgentContext) -> None:
        (task / "tests" / "more.txt").write_text("more")

    stage = Stage(make_spec(task, tmp_path / "jobs"), meddle)
    run(stage)
    (finding,) = findings_of(stage)
    assert finding["code"] == "tests-changed"
    assert finding["detail"] == {"files": ["more.txt"]}


@pytest.mark.parametrize(("jump", "way"), [(3600.0, "ahead"), (-30.0, "back")])
def test_a_clock_that_jumps_is_found_in_the_phase(tmp_path: Path, jump: float, way: str) -> None:
    offset = [0.0]

    async def turn(environment: Environment, context: AgentContext) -> None:
        offset[0] = jump

    clock = Clock(wall=lambda: datetime.now(UTC) + timedelta(seconds=offset[0]))
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs")
    stage = Stage(spec, turn, WatchedEnvironment, clock)
    result = run(stage)
    assert result.exception_info is None
    (finding,) = findings_of(stage)
    assert (finding["code"], finding["phase"]) == ("clock-jumped", "agent")
    assert way in str(finding["message"])
    record = json.loads(paths_of(spec).record_path.read_text())
    assert record["timing"]["agent_seconds"] is None or jump > 0
    assert record["completeness"] == ("complete" if jump > 0 else "partial")


def test_an_ordinary_trial_has_no_findings(tmp_path: Path) -> None:
    stage = Stage(make_spec(write_task(tmp_path / "task"), tmp_path / "jobs"))
    run(stage)
    assert findings_of(stage) == []


class Noticing(WatchedEnvironment):
    """Finds something when it starts, and whenever files are taken out of it."""

    def __init__(self, order: EnvironmentOrder) -> None:
        super().__init__(order)
        self._found: list[Finding] = []

    @property
    def findings(self) -> Sequence[Finding]:
        return tuple(self._found)

    async def start(self, force_build: bool) -> None:
        await super().start(force_build)
        self._notice(FindingCode.NETWORK_SHARED)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await super().download_dir(source_dir, target_dir)
        self._notice(FindingCode.FILES_REFUSED)

    def _notice(self, code: FindingCode) -> None:
        self._found.append(Finding(code=code, phase="its own word", message=""))


def test_what_the_environment_found_is_placed_in_a_phase_of_the_trial(tmp_path: Path) -> None:
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs")
    stage = Stage(spec, environment_class=Noticing)
    run(stage)
    placed = {str(finding["code"]): finding["phase"] for finding in findings_of(stage)}
    assert placed == {"network-shared": "setup", "files-refused": "collect"}
    assert set(placed.values()) <= set(stage.phases)


class Odd(WatchedEnvironment):
    """One that found files whose names are no text."""

    @property
    def findings(self) -> Sequence[Finding]:
        name = b"\xff\x1b[31m".decode(errors="surrogateescape")
        detail: dict[str, object] = {"refused": [name], name: {name: 1}}
        code = FindingCode.FILES_REFUSED
        return (Finding(code=code, phase="agent", message=f"not {name}", detail=detail),)


def test_a_name_that_is_no_text_takes_no_finding_away(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", {"tests/test.sh": FAILING})
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside(PLANT), Odd)
    assert run(stage).exception_info is None
    odd, *others = findings_of(stage)
    assert [finding["code"] for finding in others] == ["reward-planted", "tests-planted"]
    assert odd["message"] == "not \\udcff\x1b[31m"
    record = json.loads(paths_of(stage.spec).record_path.read_text())
    assert record["evaluation"]["reward"] == 0.0


def test_a_trace_without_end_is_kept_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.trial.recording.LONGEST_TRACE", 1000)
    task = write_task(tmp_path / "task")
    deed = run_inside("yes '{}' | head -n 1000 > /logs/agent/trajectory.jsonl")
    stage = Stage(make_spec(task, tmp_path / "jobs"), deed)
    assert run(stage).exception_info is None
    (found,) = findings_of(stage)
    assert found["code"] == "files-refused"
    assert found["detail"] == {"file": "agent/trajectory.jsonl", "size": 3000}
    assert (paths_of(stage.spec).agent_dir / "trajectory.jsonl").stat().st_size == 3000


def test_a_linked_reward_counts_as_in_harbor_and_is_found_and_kept_as_a_file(
    tmp_path: Path,
) -> None:
    """Harbor follows the link on the host; a reader of the job gets the bytes that it led to."""
    (tmp_path / "held").write_text("1\n")
    script = f"#!/bin/bash\nln -s {tmp_path}/held /logs/verifier/reward.txt\n"
    task = write_task(tmp_path / "task", {"tests/test.sh": script})
    spec = make_spec(task, tmp_path / "jobs")
    result = run(stage := Stage(spec, run_inside("true"), MountedEnvironment))
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1.0}
    (finding,) = findings_of(stage)
    assert (finding["code"], finding["phase"]) == ("linked-reward", "verify")
    assert finding["detail"] == {"link": "verifier/reward.txt", "target": str(tmp_path / "held")}
    file = paths_of(spec).verifier_dir / "reward.txt"
    assert (file.is_symlink(), file.read_text()) == (False, "1\n")
    assert load_trial(str(paths_of(spec).trial_dir), DEFAULT_PROFILE).follows


def test_a_link_to_no_reward_is_found_too_and_gives_none(tmp_path: Path) -> None:
    script = "#!/bin/bash\nln -s /proc/self/nothing /logs/verifier/reward.txt\n"
    task = write_task(tmp_path / "task", {"tests/test.sh": script})
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside("true"), MountedEnvironment)
    result = run(stage)
    assert result.exception_info is not None
    assert result.exception_info.exception_type == "RewardFileNotFoundError"
    assert [finding["code"] for finding in findings_of(stage)] == ["linked-reward"]


@pytest.mark.parametrize("is_scored", [True, False])
def test_a_link_brings_no_other_file_of_the_host_into_the_evidence(
    tmp_path: Path, *, is_scored: bool
) -> None:
    (tmp_path / "secret").write_text("-----BEGIN PRIVATE KEY-----\n")
    score = "echo '{\"reward\": 1}' > /logs/verifier/reward.json\n" if is_scored else ""
    script = f"#!/bin/bash\n{score}ln -s {tmp_path}/secret /logs/verifier/reward.txt\n"
    task = write_task(tmp_path / "task", {"tests/test.sh": script})
    spec = make_spec(task, tmp_path / "jobs")
    result = run(stage := Stage(spec, run_inside("true"), MountedEnvironment))
    assert (result.verifier_result is not None) is is_scored
    codes = ["two-rewards", "linked-reward"] if is_scored else ["linked-reward"]
    assert [finding["code"] for finding in findings_of(stage)] == codes
    kept = [
        path
        for path in paths_of(spec).trial_dir.rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    assert not [path for path in kept if b"PRIVATE KEY" in path.read_bytes()]
