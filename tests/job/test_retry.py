"""When a failed trial is run again, and what becomes of the attempt that failed."""

import json
from pathlib import Path

import pytest

from proctor.errors import ContainerDiedError, SandboxDiedError, ToolsChangedError
from proctor.harbor.configs import RetryConfig
from proctor.job.attempts import count_attempts, is_being_kept, keep_attempt
from proctor.job.retry import is_retried, retry_delay


def test_nothing_is_retried_unless_asked() -> None:
    assert not is_retried("ConnectionError", RetryConfig(), 0)


@pytest.mark.parametrize(
    ("exception", "retried"),
    [
        ("ConnectionError", True),
        ("ValidationError", True),
        ("AgentTimeoutError", False),
        ("VerifierTimeoutError", False),
        ("RewardFileNotFoundError", False),
        ("RewardFileEmptyError", False),
        ("VerifierOutputParseError", False),
    ],
)
def test_by_default_all_but_harbors_five_are_retried(exception: str, retried: bool) -> None:
    assert is_retried(exception, RetryConfig(max_retries=1), 0) is retried


def test_excluded_beats_included_and_names_are_compared_whole() -> None:
    retry = RetryConfig(max_retries=1, include_exceptions={"A", "B"}, exclude_exceptions={"B"})
    assert [is_retried(name, retry, 0) for name in ("A", "B", "C", "AB")] == [
        True,
        False,
        False,
        False,
    ]


def test_an_empty_list_is_no_list() -> None:
    retry = RetryConfig(max_retries=1, include_exceptions=set(), exclude_exceptions=set())
    assert is_retried("AgentTimeoutError", retry, 0)


@pytest.mark.parametrize("kind", [ToolsChangedError, SandboxDiedError, ContainerDiedError])
def test_what_an_agent_can_bring_about_is_only_retried_by_name(kind: type[Exception]) -> None:
    name = kind.__name__
    without = RetryConfig(max_retries=1, exclude_exceptions=set())
    named = RetryConfig(max_retries=1, include_exceptions={name})
    both = RetryConfig(max_retries=1, include_exceptions={name}, exclude_exceptions={name})
    assert [is_retried(name, retry, 0) for retry in (without, named, both)] == [False, True, False]


def test_it_ends_after_so_many() -> None:
    retry = RetryConfig(max_retries=2)
    assert [is_retried("E", retry, n) for n in range(4)] == [True, True, False, False]


def test_the_wait_grows_by_its_multiplier_up_to_the_most() -> None:
    retry = RetryConfig(min_wait_sec=1, wait_multiplier=3, max_wait_sec=20)
    assert [retry_delay(retry, n) for n in range(4)] == [1, 3, 9, 20]
    assert retry_delay(retry, 100_000) == 20
    assert [retry_delay(RetryConfig(), n) for n in range(3)] == [1, 1, 1]


def leave(trial: Path, words: str) -> None:
    (trial / "agent").mkdir(parents=True)
    (trial / "agent" / "log.txt").write_text(words, encoding="utf-8")
    (trial / "result.json").write_text(json.dumps({"words": words}), encoding="utf-8")


def test_attempts_are_kept_in_order_byte_for_byte(tmp_path: Path) -> None:
    trial = tmp_path / "task__abc"
    for number, words in enumerate(("first", "second"), 1):
        leave(trial, words)
        assert keep_attempt(trial) == number
    assert [path.name for path in trial.iterdir()] == ["attempts"]
    assert count_attempts(str(trial)) == 2
    for name, words in (("1", "first"), ("2", "second")):
        kept = trial / "attempts" / name
        assert (kept / "agent" / "log.txt").read_text(encoding="utf-8") == words
        assert json.loads((kept / "result.json").read_bytes()) == {"words": words}


def test_nothing_left_is_no_attempt(tmp_path: Path) -> None:
    assert keep_attempt(tmp_path / "never") == 0
    assert keep_attempt(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_crash_while_keeping_is_gone_on_with(tmp_path: Path) -> None:
    leave(tmp_path, "words")
    begun = tmp_path / "attempts" / ".1"
    begun.mkdir(parents=True)
    (tmp_path / "agent").rename(begun / "agent")
    assert is_being_kept(str(tmp_path))
    assert keep_attempt(tmp_path) == 1
    assert not is_being_kept(str(tmp_path))
    kept = tmp_path / "attempts" / "1"
    assert sorted(path.name for path in kept.iterdir()) == ["agent", "result.json"]


def test_what_was_put_there_after_a_crash_is_another_attempt(tmp_path: Path) -> None:
    leave(tmp_path / "attempts" / ".1", "first")
    leave(tmp_path, "second")
    assert keep_attempt(tmp_path) == 2
    for number, words in (("1", "first"), ("2", "second")):
        kept = tmp_path / "attempts" / number / "result.json"
        assert json.loads(kept.read_bytes()) == {"words": words}


def test_a_record_that_cannot_be_read_is_kept_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_bytes(b'{"trial_id": "x", "to')
    assert keep_attempt(tmp_path) == 1
    assert (tmp_path / "attempts" / "1" / "record.json").read_bytes() == b'{"trial_id": "x", "to'
