"""The text of lock.json: equal trials once, however many there are."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

from proctor.harbor.configs import AgentConfig, EnvironmentConfig, RetryConfig, VerifierConfig
from proctor.harbor.lock import JobLock, TaskLock, TrialLock, make_lock, render_lock

NOON = datetime(2025, 1, 2, 12, tzinfo=UTC)


def make_trial(name: str) -> TrialLock:
    return TrialLock(
        task=TaskLock(name=name, type="local", digest=f"sha256:{'0' * 64}", path=Path(name)),
        agent=AgentConfig(name="nop", env={"API_KEY": "sk-0123456789"}, kwargs={"text": 'a\n"b"'}),
        environment=EnvironmentConfig(),
        verifier=VerifierConfig(),
    )


def lock_of(*trials: TrialLock) -> JobLock:
    return make_lock(
        created_at=NOON,
        invocation=["proctor", "run", "--ae", "API_KEY=sk-0123456789"],
        n_concurrent_trials=4,
        retry=RetryConfig(),
        trials=trials,
        host={},
    )


def test_a_repeated_trial_has_the_text_it_has_by_itself() -> None:
    one, other = make_trial("one"), make_trial("other")
    lock = lock_of(one, other, one)
    assert render_lock(lock).decode() == lock.model_dump_json(indent=4, exclude_none=True)


def test_a_plan_without_trials_has_a_text_too() -> None:
    lock = lock_of()
    assert render_lock(lock).decode() == lock.model_dump_json(indent=4, exclude_none=True)


def test_a_large_plan_is_written_in_a_third_and_read_as_the_same() -> None:
    trials = [make_trial(name) for name in ("b", "a", "c")]
    lock = lock_of(*trials, *trials)
    plain, compact = render_lock(lock, many=6), render_lock(lock, many=5)
    assert JobLock.model_validate_json(plain) == JobLock.model_validate_json(compact)
    assert len(compact) < len(plain) / 3
    assert b"0123456789" not in compact


def test_no_secret_is_in_a_lock() -> None:
    text = render_lock(lock_of(make_trial("one"))).decode()
    assert "0123456789" not in text
    assert json.loads(text)["invocation"][-1] == "API_KEY=sk-0****789"


def test_the_format_is_said_to_be_harbors() -> None:
    written = json.loads(render_lock(lock_of()))
    assert written["harbor"] == {"version": "0.13.1", "is_editable": False}
    assert written["created_at"] == "2025-01-02T12:00:00Z"


def test_a_lock_is_read_back_in_order() -> None:
    trials = [make_trial(name) for name in ("b", "a", "c")]
    read = JobLock.model_validate_json(render_lock(lock_of(*trials, *trials)))
    assert [trial.task.name for trial in read.trials] == ["b", "a", "c"] * 2


def test_ten_thousand_trials_are_rendered_at_once() -> None:
    trials = [make_trial(f"task-{n}") for n in range(50)] * 200
    lock = lock_of(*trials)
    began = time.process_time()
    text = render_lock(lock)
    assert time.process_time() - began < 1
    assert len(json.loads(text)["trials"]) == 10_000
