"""The environment that is nothing at all."""

import asyncio
from pathlib import Path

import pytest

from proctor.environments.kinds import make_environment
from proctor.environments.null import NullEnvironment
from proctor.errors import UnsupportedError
from proctor.trial.environment import Snapshot, Watched
from tests.environments.orders import null_config, order_of

TESTS = "(/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1"


def make(place: Path, **kwargs: object) -> NullEnvironment:
    made = make_environment(order_of(place, config=null_config(**kwargs)))
    assert isinstance(made, NullEnvironment)
    return made


def test_a_command_succeeds_and_says_nothing(tmp_path: Path) -> None:
    done = asyncio.run(make(tmp_path).exec("rm -rf /"))
    assert (done.stdout, done.stderr, done.return_code) == (None, None, 0)


@pytest.mark.parametrize(("kwargs", "text"), [({}, "1\n"), ({"reward": 0.5}, "0.5")])
def test_the_test_script_leaves_a_reward(
    tmp_path: Path, kwargs: dict[str, object], text: str
) -> None:
    null = make(tmp_path, **kwargs)
    asyncio.run(null.exec(TESTS))
    assert null.trial_paths.reward_text_path.read_text() == text
    assert null.trial_paths.test_stdout_path.read_text() == "ok\n"


def test_making_the_script_executable_leaves_no_reward(tmp_path: Path) -> None:
    null = make(tmp_path)
    asyncio.run(null.exec("chmod +x /tests/test.sh"))
    assert not null.trial_paths.reward_text_path.exists()


def test_a_room_has_an_empty_verifier_directory(tmp_path: Path) -> None:
    null = make(tmp_path)
    planted = null.trial_paths.verifier_dir / "deep"
    planted.mkdir()
    (planted / "reward.txt").write_text("1")
    (null.trial_paths.verifier_dir / "reward.txt").symlink_to(planted)
    assert asyncio.run(null.open_room(["/tests", "/logs/verifier"])) is null
    assert list(null.trial_paths.verifier_dir.iterdir()) == []


def test_it_is_watched_and_runs_on_nothing(tmp_path: Path) -> None:
    null = make(tmp_path)
    assert isinstance(null, Watched)
    assert null.snapshot == Snapshot("null", "null")
    assert null.capabilities.mounted
    assert null.capabilities.disable_internet
    assert not asyncio.run(null.list_processes())


async def test_it_starts_and_stops_at_any_time(tmp_path: Path) -> None:
    null = make(tmp_path)
    await null.stop(delete=True)
    await null.start(force_build=False)
    await null.stop(delete=True)
    await null.stop(delete=True)


@pytest.mark.parametrize("kwargs", [{"speed": 3}, {"reward": [1]}])
def test_a_kwarg_that_means_nothing_is_refused(tmp_path: Path, kwargs: dict[str, object]) -> None:
    with pytest.raises(UnsupportedError, match="takes only reward"):
        make(tmp_path, **kwargs)
