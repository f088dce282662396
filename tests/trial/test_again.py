"""What an agent left, verified again: the first time counts, the others are written down."""

import asyncio
import json
import shutil
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from proctor.environments.null import NullEnvironment
from proctor.harbor.configs import NULL, AgentConfig, EnvironmentConfig
from proctor.harbor.trial_result import TrialResult
from proctor.trial.agent import Kinds
from proctor.trial.environment import Environment, EnvironmentOrder
from proctor.trial.paths import TrialPaths
from proctor.trial.spec import TrialSpec
from proctor.trial.trial import run_trial
from tests.trial.rooms import MountedEnvironment, PlainEnvironment, WatchedEnvironment
from tests.trial.stage import Stage, load_findings, make_spec, paths_of, run_inside, write_task

COUNTING = """#!/bin/bash
n=$(cat /app/n 2>/dev/null || echo 0); echo $((n + 1)) > /app/n
echo $n > /logs/verifier/reward.txt
"""
"""Tests that change what they look at."""
LEAVES = "sleep 60 > /dev/null 2>&1 & disown"
STEPS = '[[steps]]\nname = "one"\n\n[[steps]]\nname = "two"\n'


class FreezingEnvironment(WatchedEnvironment):
    """One that keeps its tree."""

    kept: Path | None = None

    async def holds_memory(self) -> bool:
        return False

    async def freeze(self) -> None:
        self.kept = Path(f"{self.tree.root}.kept")
        copy(self.tree.root, self.kept)

    async def open_frozen(self, paths: TrialPaths) -> Environment:
        other = type(self)(replace(self.order, trial_paths=paths))
        assert self.kept is not None
        copy(self.kept, other.tree.root)
        shutil.rmtree(other.tree.root / ".rooms", ignore_errors=True)
        return other

    async def stop(self, delete: bool) -> None:
        await super().stop(delete)
        if self.kept is not None:
            shutil.rmtree(self.kept)
            self.kept = None


class FullEnvironment(FreezingEnvironment):
    """One that has no room for a copy."""

    async def freeze(self) -> None:
        raise OSError(28, "No space left on device")


class OnceEnvironment(FreezingEnvironment):
    """One of which there can be a single copy."""

    opened = 0

    async def open_frozen(self, paths: TrialPaths) -> Environment:
        self.opened += 1
        if self.opened > 1:
            raise RuntimeError("no more of them")
        return await super().open_frozen(paths)


def copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["/bin/cp", "-a", source, target], check=True)


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def run(stage: Stage) -> TrialResult:
    return asyncio.run(stage.run())


def plan_again(place: Path, n: int = 2, test: str = COUNTING, **config: Any) -> TrialSpec:
    task = write_task(place / "task", {"tests/test.sh": test})
    return replace(make_spec(task, place / "jobs", **config), verify_again=n)


def plan_steps(place: Path) -> TrialSpec:
    own = {f"steps/{name}/instruction.md": "Do it.\n" for name in ("one", "two")}
    task = write_task(place / "task", {"tests/test.sh": COUNTING, **own}, STEPS)
    return replace(make_spec(task, place / "jobs"), verify_again=2)


def results(spec: TrialSpec) -> list[str]:
    (state,) = load(paths_of(spec).verify_again_path)["states"]
    return [each["result"] for each in state["verifications"]]


def found(spec: TrialSpec) -> list[str]:
    return [finding["code"] for finding in load_findings(spec)]


def test_each_time_the_tests_find_what_the_agent_left(tmp_path: Path) -> None:
    spec = plan_again(tmp_path, 3)
    stage = Stage(spec, run_inside("echo 7 > /app/n"), FreezingEnvironment)
    result = run(stage)
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 7.0}
    assert results(spec) == ['{"reward": 7.0}'] * 4
    (state,) = load(paths_of(spec).verify_again_path)["states"]
    assert (state["state"], state["flake_rate"], state["reason"]) == ("frozen", 0.0, None)
    for number in (1, 2, 3):
        assert (paths_of(spec).verify_again_dir(number) / "reward.txt").read_text() == "7\n"
    assert (stage.phases[-4:], found(spec)) == (["freeze", "verify", "verify-again", "record"], [])


def test_nothing_of_the_verification_that_counts_is_changed(tmp_path: Path) -> None:
    once, again = (plan_again(tmp_path / str(n), n) for n in (0, 2))
    command = "echo 3 > /app/n; echo 1 > /logs/verifier/reward.txt; " + LEAVES
    for spec in (once, again):
        run(Stage(spec, run_inside(command), FreezingEnvironment))
    assert not paths_of(once).verify_again_path.exists()
    assert files_of(again) == files_of(once)
    one, other = (load(paths_of(spec).result_path) for spec in (once, again))
    same = ("verifier_result", "exception_info", "agent_result", "task_checksum")
    assert [one[name] for name in same] == [other[name] for name in same]
    assert found(again) == [*found(once), "verifier-flaky"]


def files_of(spec: TrialSpec) -> dict[str, bytes]:
    """What the verification that counts left."""
    top = paths_of(spec).verifier_dir
    return {str(path.relative_to(top)): path.read_bytes() for path in top.iterdir()}


def test_where_the_agents_processes_live_the_environment_itself_is_verified_again(
    tmp_path: Path,
) -> None:
    spec = plan_again(tmp_path)
    run(Stage(spec, run_inside(LEAVES), FreezingEnvironment))
    (state,) = load(paths_of(spec).verify_again_path)["states"]
    assert state["state"] == "live"
    assert results(spec) == [f'{{"reward": {n}.0}}' for n in range(3)]
    assert (state["flake_rate"], found(spec)) == (1.0, ["agent-still-busy", "verifier-flaky"])


def test_as_harbor_leaves_things_a_living_state_is_verified_once(tmp_path: Path) -> None:
    spec = replace(plan_again(tmp_path), is_harbor_compatible=True)
    run(Stage(spec, run_inside(LEAVES), FreezingEnvironment))
    (state,) = load(paths_of(spec).verify_again_path)["states"]
    assert (state["state"], len(state["verifications"])) == (None, 1)
    assert state["reason"].endswith("the tests would find what they had left before")


class DatedEnvironment(FreezingEnvironment):
    """One that says when its first copy was asked for."""

    opened_at: ClassVar[list[datetime]] = []

    async def open_frozen(self, paths: TrialPaths) -> Environment:
        self.opened_at.append(datetime.now(UTC))
        return await super().open_frozen(paths)


def test_a_trial_ends_when_it_is_marked_not_when_it_is_verified_again(tmp_path: Path) -> None:
    DatedEnvironment.opened_at.clear()
    result = run(Stage(plan_again(tmp_path), environment_class=DatedEnvironment))
    assert result.finished_at is not None
    assert result.finished_at <= DatedEnvironment.opened_at[0]


def test_no_secret_is_in_what_further_verifications_gave(tmp_path: Path) -> None:
    key = "sk-never-to-be-seen"
    test = f"""#!/bin/bash\necho '{{"{key}": 1}}' > /logs/verifier/reward.json\n"""
    agent = AgentConfig(name="x", env={"API_KEY": key})
    spec = plan_again(tmp_path, test=test, agent=agent)
    run(Stage(spec, environment_class=FreezingEnvironment))
    assert results(spec) == ['{"[redacted:API_KEY]": 1}'] * 3
    assert key not in paths_of(spec).verify_again_path.read_text()


@dataclass
class Moody:
    """A verifier of the job's own that changes its mind, wherever it looks."""

    trial_paths: Any
    moods: list[float]

    def __init__(self, trial_paths: Any, moods: list[float], **_: Any) -> None:
        self.trial_paths, self.moods = trial_paths, moods

    async def verify(self) -> Any:
        assert self.trial_paths.agent_dir.is_dir()
        mood = self.moods.pop(0)
        (self.trial_paths.verifier_dir / "mood.txt").write_text(str(mood))
        if mood < 0:
            raise ValueError("not today")
        self.rewards = {"mood": mood}
        return self


def test_a_verifier_that_changes_its_mind_is_found_out(tmp_path: Path) -> None:
    own = {"import_path": "tests.trial.test_again:Moody", "kwargs": {"moods": [0.5, 1, -1, 0.5]}}
    spec = plan_again(tmp_path, 3, verifier=own)
    result = run(Stage(spec, environment_class=FreezingEnvironment))
    assert result.exception_info is None
    assert results(spec) == ['{"mood": 0.5}', '{"mood": 1}', "ValueError", '{"mood": 0.5}']
    (state,) = load(paths_of(spec).verify_again_path)["states"]
    assert [each["is_same"] for each in state["verifications"]] == [True, False, False, True]
    assert state["verifications"][2]["exception_message"] == "not today"
    assert (state["pairs"], state["differing_pairs"], state["n_differing"]) == (6, 5, 2)
    (finding,) = load_findings(spec)
    assert (finding["code"], finding["phase"]) == ("verifier-flaky", "verify-again")
    assert finding["detail"]["results"] == {'{"mood": 0.5}': 2, '{"mood": 1}': 1, "ValueError": 1}
    assert (paths_of(spec).verifier_dir / "mood.txt").read_text() == "0.5"
    assert (paths_of(spec).verify_again_dir(2) / "mood.txt").read_text() == "-1"


def test_a_verification_that_fails_when_it_counts_is_compared_like_any_other(
    tmp_path: Path,
) -> None:
    own = {"import_path": "tests.trial.test_again:Moody", "kwargs": {"moods": [-1, -1, 1]}}
    spec = plan_again(tmp_path, verifier=own)
    result = run(Stage(spec, environment_class=FreezingEnvironment))
    assert result.exception_info is not None
    assert result.exception_info.exception_type == "ValueError"
    assert results(spec) == ["ValueError", "ValueError", '{"mood": 1}']


@pytest.mark.parametrize(
    ("kind", "n_verified", "reason"),
    [
        (PlainEnvironment, 1, "its state could not be kept: PlainEnvironment is an environment "),
        (MountedEnvironment, 1, "its state could not be kept: MountedEnvironment is an environ"),
        (FullEnvironment, 1, "its state could not be kept: [Errno 28] No space left on device"),
        (OnceEnvironment, 2, "RuntimeError: no more of them"),
    ],
)
def test_what_cannot_be_verified_again_says_why_and_keeps_its_score(
    tmp_path: Path, kind: type[PlainEnvironment], n_verified: int, reason: str
) -> None:
    spec = plan_again(tmp_path)
    result = run(Stage(spec, environment_class=kind))
    assert result.exception_info is None
    assert result.verifier_result is not None
    (state,) = load(paths_of(spec).verify_again_path)["states"]
    assert len(state["verifications"]) == n_verified
    assert state["reason"].startswith(reason)
    assert found(spec) == []


async def test_a_trial_that_is_stopped_while_it_is_verified_again_keeps_its_result(
    tmp_path: Path,
) -> None:
    test = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt; [ ! -e /app/on ] || sleep 60\n"
    spec = plan_again(tmp_path, test=test)
    stage = Stage(spec, environment_class=SlowAgain)
    task = asyncio.ensure_future(stage.run())
    while "verify-again" not in stage.phases:
        await asyncio.sleep(0.01)
    task.cancel()
    await task
    result = load(paths_of(spec).result_path)
    assert (result["exception_info"], result["verifier_result"]) == (
        None,
        {"rewards": {"reward": 1.0}},
    )
    (state,) = load(paths_of(spec).verify_again_path)["states"]
    assert (len(state["verifications"]), state["reason"]) == (1, "the run was stopped")


class SlowAgain(FreezingEnvironment):
    """One whose copies make tests wait."""

    async def open_frozen(self, paths: TrialPaths) -> Environment:
        other = await super().open_frozen(paths)
        await other.exec("touch /app/on")
        return other


def test_every_step_is_verified_again_before_the_next_one_begins(tmp_path: Path) -> None:
    spec = plan_steps(tmp_path)
    run(Stage(spec, environment_class=FreezingEnvironment))
    states = load(paths_of(spec).verify_again_path)["states"]
    seen = {state["step"]: [each["result"] for each in state["verifications"]] for state in states}
    # The verifications that count go on from each other, and the others from where those began.
    assert seen == {"one": ['{"reward": 0.0}'] * 3, "two": ['{"reward": 1.0}'] * 3}
    assert (paths_of(spec).verify_again_dir(2, "two") / "reward.txt").read_text() == "1\n"
    assert (paths_of(spec).step_verifier_dir("one") / "reward.txt").read_text() == "0\n"


def test_a_step_is_not_verified_again_where_that_would_change_the_next_one(
    tmp_path: Path,
) -> None:
    spec = plan_steps(tmp_path)
    run(Stage(spec, run_inside(LEAVES), FreezingEnvironment))
    one, two = load(paths_of(spec).verify_again_path)["states"]
    assert (one["state"], len(one["verifications"])) == (None, 1)
    assert one["reason"].endswith("the next step would begin with what the tests had changed")
    assert [each["result"] for each in two["verifications"]] == [
        f'{{"reward": {n}.0}}' for n in (1, 2, 3)
    ]


def test_the_environment_that_does_nothing_can_be_verified_again(tmp_path: Path) -> None:
    config = EnvironmentConfig(import_path=NULL, kwargs={"reward": "0.5"})
    spec = plan_again(tmp_path, environment=config)

    def make(order: EnvironmentOrder) -> Environment:
        return NullEnvironment(order)

    kinds = Kinds(Stage(spec).make_agent, make)
    result = asyncio.run(run_trial(spec, paths_of(spec).trial_dir, kinds, lambda _: None))
    assert result.verifier_result is not None
    assert results(spec) == ['{"reward": 0.5}'] * 3
    assert (paths_of(spec).verify_again_dir(2) / "reward.txt").read_text() == "0.5"
    assert (paths_of(spec).verifier_dir / "reward.txt").read_text() == "0.5"
