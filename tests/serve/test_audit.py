"""The log of requests: refused ones are counted, and it does not grow without limit."""

from pathlib import Path
from typing import Any

import msgspec

from proctor.serve.audit import AuditLog


def read(path: Path) -> list[dict[str, Any]]:
    """Its lines, without the time."""
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    return [{name: value for name, value in line.items() if name != "at"} for line in lines]


def facts(status: int, address: str = "192.0.2.1") -> dict[str, object]:
    return {"token": None, "address": address, "status": status}


def test_refused_requests_of_one_kind_are_a_line_and_a_count_in_each_minute(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log")
    for second in range(50):
        log.refuse(second, {**facts(401), "path": "/checkpoint"})
    log.refuse(51, facts(429))
    log.refuse(52, facts(401, "192.0.2.2"))
    first = [
        {**facts(401), "path": "/checkpoint"},
        facts(429),
        facts(401, "192.0.2.2"),
    ]
    assert read(log.path) == first
    # Nothing was counted of the others.
    log.write(130, {"token": "node", "status": 200})
    counted = [*first, {**facts(401), "count": 49}, {"token": "node", "status": 200}]
    assert read(log.path) == counted
    log.refuse(131, facts(401))
    log.refuse(132, facts(401))
    log.close(133)
    assert read(log.path) == [*counted, facts(401), {**facts(401), "count": 1}]


def test_many_addresses_do_not_fill_the_memory(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log")
    for number in range(1001):
        log.refuse(0, facts(401, str(number)))
        log.refuse(0, facts(401, str(number)))
    assert len(log._refused) == 1
    assert sum(line.get("count", 0) for line in read(log.path)) == 1000


def test_the_log_is_bounded(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log", largest=1000)
    for number in range(200):
        log.write(0, {"number": number, "padding": "x" * 60})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["log", "log.1", "log.2", "log.3", "log.4"]
    assert all(path.stat().st_size < 1200 for path in tmp_path.iterdir())
    # What is left is the newest, without a gap.
    found = [line["number"] for name in reversed(names) for line in read(tmp_path / name)]
    assert found == list(range(found[0], 200))
