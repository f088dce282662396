"""Logs that the real inspect_ai made, once for all tests, and what it reads in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.exchange.inspect.logs import share_process
from tests.exchange.inspect.theirs import make_logs, read_theirs
from tests.parity.shared import made_once

_READING = "reading.txt"


def _make(place: Path) -> None:
    make_logs(place)
    logs = sorted(path for path in place.glob("*/*/*") if path.suffix in (".eval", ".json"))
    reading = dict(zip(map(str, logs), read_theirs(*logs), strict=True))
    (place / _READING).write_text(json.dumps(reading), encoding="utf-8")


@pytest.fixture(autouse=True)
def shared_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process with inspect_ai for all tests."""
    share_process(monkeypatch)


@pytest.fixture(scope="session")
def real_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of logs by Inspect: eval/TASK, json/TASK, failed, cancelled.eval."""
    return made_once(tmp_path_factory, "inspect-logs", _make)


@pytest.fixture(scope="session")
def their_reading(real_logs: Path) -> dict[str, dict[str, Any]]:
    """What Inspect reads in each of the logs, by path."""
    found: dict[str, dict[str, Any]] = json.loads((real_logs / _READING).read_text("utf-8"))
    return found
