"""How long a harbor trial took."""

from pathlib import Path

import pytest

from tests.audit.directories import read_json
from tests.exchange.trials import copy_trial, edit_result, find_task, make


def phase(start: int, end: int) -> dict[str, str]:
    return {
        "started_at": f"2026-01-01T00:00:{start:02}Z",
        "finished_at": f"2026-01-01T00:00:{end:02}.500000Z",
    }


def test_phases_are_timed(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    edit_result(
        trial,
        **phase(0, 30),
        environment_setup=phase(1, 3),
        agent_setup=phase(3, 4),
        agent_execution=phase(5, 10),
        verifier=phase(11, 12),
    )
    timing = make(trial).record.timing
    assert timing.total_seconds == 30.5
    assert (timing.setup_seconds, timing.agent_seconds) == (4.0, 5.5)
    assert timing.verification_seconds == 1.5


UNKNOWN = [
    {"started_at": "2026-01-01T00:00:09Z", "finished_at": "2026-01-01T00:00:05Z"},
    {"started_at": "2026-01-01T00:00:00", "finished_at": "2026-01-01T00:00:05Z"},
    {"started_at": None},
]
NO_PHASES: dict[str, object] = dict.fromkeys(
    ("environment_setup", "agent_setup", "agent_execution", "verifier")
)


@pytest.mark.parametrize("times", UNKNOWN)
def test_without_a_duration_the_known_phases_give_one(
    tmp_path: Path, times: dict[str, object]
) -> None:
    trial = copy_trial(tmp_path)
    half = phase(0, 59) | {"started_at": None}
    naive = {key: time.rstrip("Z") for key, time in phase(11, 12).items()}
    edit_result(
        trial,
        **times,
        **NO_PHASES | {"agent_setup": half, "agent_execution": phase(5, 10), "verifier": naive},
    )
    made = make(trial, task=find_task(trial))
    timing = made.record.timing
    assert (timing.total_seconds, timing.setup_seconds) == (7.5, None)
    assert (timing.agent_seconds, timing.verification_seconds) == (5.5, 1.5)
    assert made.record.completeness == "complete"


def test_the_phases_of_steps_count_too(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "10-multistep-oracle-mounted", "ms-final")
    steps = read_json(trial / "result.json")["step_results"]
    for number, step in enumerate(steps):
        step.update(agent_execution=phase(10 * number, 10 * number + 3), verifier=None)
    edit_result(trial, started_at=None, step_results=steps, **NO_PHASES)
    assert make(trial).record.timing.total_seconds == 10 * (len(steps) - 1) + 3.5


@pytest.mark.parametrize("times", UNKNOWN)
def test_a_duration_that_nobody_knows_keeps_a_record_partial(
    tmp_path: Path, times: dict[str, object]
) -> None:
    trial = copy_trial(tmp_path)
    edit_result(trial, **times, **NO_PHASES)
    made = make(trial, task=find_task(trial))
    assert made.record.timing.total_seconds == 0.0
    assert made.record.completeness == "partial"


def test_the_phases_of_steps_are_added_up(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "10-multistep-oracle-mounted", "ms-final")
    steps = read_json(trial / "result.json")["step_results"]
    for step in steps:
        step.update(agent_execution=phase(0, 2), verifier=phase(2, 3))
    edit_result(trial, step_results=steps)
    made = make(trial)
    assert made.record.timing.agent_seconds == 2.5 * len(steps)
    assert made.record.timing.verification_seconds == 1.5 * len(steps)


def test_sums_of_times_are_told_to_the_microsecond(tmp_path: Path) -> None:
    def lasting(seconds: str) -> dict[str, str]:
        return {
            "started_at": "2026-01-01T00:00:00.000000Z",
            "finished_at": f"2026-01-01T00:00:{seconds}Z",
        }

    trial = copy_trial(tmp_path)
    edit_result(trial, environment_setup=lasting("00.228217"), agent_setup=lasting("00.039739"))
    assert str(0.228217 + 0.039739) == "0.26795599999999997"
    assert make(trial).record.timing.setup_seconds == 0.267956
