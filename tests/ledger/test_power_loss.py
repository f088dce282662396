"""The power goes at any moment of a seal; whatever was not synced is there, or not, or torn."""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from tests.ledger.crashes import check_survivor, lay_out, sealed_in
from tests.ledger.disk import Left, Recording, record, states
from tests.ledger.sealer import STEPS, TOGETHER

pytestmark = pytest.mark.usefixtures("strace")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record_sealer(tmp_path_factory.mktemp("power"))


def record_sealer(place: Path, **settings: str) -> Recording:
    lay_out(place)
    words = [sys.executable, "-m", "tests.ledger.sealer"]
    words += [str(place / "ledger"), str(place / "key"), str(place / "evidence"), *STEPS]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **settings}
    return record(place / "ledger", words, env)


def test_after_a_power_cut_nothing_acknowledged_is_lost_and_nothing_half_done_is_shown(
    recording: Recording, tmp_path: Path
) -> None:
    check_states(recording, tmp_path, most=1)


@pytest.mark.soak
def test_after_every_power_cut_nothing_is_lost(recording: Recording, tmp_path: Path) -> None:
    check_states(recording, tmp_path, most=100)


@pytest.mark.soak
def test_files_that_reach_the_disk_together_are_there_before_their_line(tmp_path: Path) -> None:
    (tmp_path / "power").mkdir()
    together = record_sealer(tmp_path / "power", **{TOGETHER: "1"})
    (tmp_path / "left").mkdir()
    check_states(together, tmp_path / "left", most=6)


def check_states(recording: Recording, tmp_path: Path, most: int) -> None:
    draw = random.Random(5)
    for number, left in enumerate(states(recording, draw, most)):
        place = tmp_path / str(number)
        put(left, recording, place)
        try:
            check_survivor(place, sealed_in(left.said))
        except BaseException as error:
            error.add_note(left.moment)
            raise
        shutil.rmtree(place)


def put(left: Left, recording: Recording, place: Path) -> None:
    outside = recording.root.parent
    place.mkdir()
    shutil.copy(outside / "key", place / "key")
    shutil.copytree(outside / "evidence", place / "evidence")
    left.put(recording.root, place / "ledger")
