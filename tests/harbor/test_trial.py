"""One trial: which evidence counts, what it says, and whether the claim is the same."""

import math
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import JobError
from proctor.harbor.documents import TRIAL, VerifierConfig, VerifierDocument
from proctor.harbor.stats import NO_USAGE, Usage
from proctor.harbor.trial import Basis, FoundTrial, claims_same, load_trial, weigh_steps
from proctor.reward.profile import DEFAULT_PROFILE, HARBOR_0_25
from proctor.reward.score import Scored, Unscored
from proctor.reward.steps import Verdict
from tests.harbor.written import failed, rewarded, write_rewards, write_trial

TEXT = {"reward.txt": "0.5"}


def found(directory: Path, files: dict[str, str] | None = None, **changes: Any) -> FoundTrial:
    return load_trial(str(write_trial(directory, "a__1", files, **changes)), DEFAULT_PROFILE)


def test_a_trial_is_what_its_result_says_and_its_reward_file_scored(tmp_path: Path) -> None:
    usage = {"n_input_tokens": 5, "n_cache_tokens": 4, "n_output_tokens": 3, "cost_usd": 2}
    info = {"name": "ag", "version": "1", "model_info": {"name": "m", "provider": "p"}}
    trial = found(tmp_path, agent_result=usage, agent_info=info)
    assert (trial.trial.name, trial.trial.task) == ("a__1", "a")
    assert (trial.trial.agent, trial.trial.model, trial.trial.source) == ("ag", "m", "ds")
    assert (trial.trial.verdict, trial.trial.exception) == (Verdict({"reward": 1.0}), None)
    assert trial.trial.usage == Usage(5, 4, 3, 2.0)
    assert (trial.basis, trial.evidence) == (Basis.REWARD_FILE, Scored({"reward": 1.0}))
    assert (trial.strategy, trial.follows) == (None, True)
    assert trial.claimed == VerifierDocument({"reward": 1.0})
    assert trial.directory == str(tmp_path / "a__1")


def test_the_file_counts_and_not_the_claim(tmp_path: Path) -> None:
    trial = found(tmp_path, TEXT)
    assert trial.trial.verdict == Verdict({"reward": 0.5})
    assert not trial.follows


@pytest.mark.parametrize("exception", ["AgentTimeoutError", "NonZeroAgentExitCodeError"])
def test_a_failed_agent_that_was_verified_has_its_file_and_its_exception(
    tmp_path: Path, exception: str
) -> None:
    trial = found(tmp_path, TEXT, exception_info=failed(exception))
    assert (trial.trial.verdict, trial.trial.exception) == (Verdict({"reward": 0.5}), exception)
    assert trial.basis is Basis.REWARD_FILE


def test_the_file_of_a_verifier_that_timed_out_does_not_count(tmp_path: Path) -> None:
    timed_out = failed("VerifierTimeoutError")
    trial = found(tmp_path, TEXT, exception_info=timed_out, verifier_result=None)
    assert (trial.trial.verdict, trial.trial.exception) == (None, "VerifierTimeoutError")
    assert (trial.basis, trial.follows) == (Basis.TRIAL_RESULT, True)
    assert trial.evidence == Scored({"reward": 0.5})


def test_files_do_not_count_where_verification_was_disabled(tmp_path: Path) -> None:
    config = {"verifier": {"disable": True}}
    trial = found(tmp_path, TEXT, config=config, verifier_result=None)
    assert (trial.trial.verdict, trial.trial.exception) == (None, None)
    assert (trial.basis, trial.follows) == (Basis.TRIAL_RESULT, True)


def test_a_verifier_of_the_users_own_may_leave_no_file(tmp_path: Path) -> None:
    config = {"verifier": {"import_path": "mine:Verifier"}}
    trial = found(tmp_path, {}, config=config)
    assert (trial.trial.verdict, trial.basis) == (Verdict({"reward": 1.0}), Basis.TRIAL_RESULT)
    assert (trial.trial.exception, trial.evidence) == (None, None)


def test_a_file_that_a_users_own_verifier_left_counts(tmp_path: Path) -> None:
    trial = found(tmp_path, TEXT, config={"verifier": {"import_path": "mine:Verifier"}})
    assert (trial.trial.verdict, trial.basis) == (Verdict({"reward": 0.5}), Basis.REWARD_FILE)


def test_of_both_files_the_json_counts(tmp_path: Path) -> None:
    files = {"reward.txt": "1", "reward.json": '{"b": 0, "a": 1}'}
    verdict = found(tmp_path, files).trial.verdict
    assert verdict is not None
    assert list((verdict.rewards or {}).items()) == [("b", 0), ("a", 1)]


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({}, "RewardFileNotFoundError"),
        ({"reward.txt": ""}, "RewardFileEmptyError"),
        ({"reward.txt": "one"}, "VerifierOutputParseError"),
        ({"reward.json": "{"}, "VerifierOutputParseError"),
        ({"reward.json": '{"reward": null}'}, "ValidationError"),
        ({"reward.json": "[" * 1600}, "RecursionError"),
    ],
)
def test_a_file_without_a_reward_is_the_error_that_harbor_records(
    tmp_path: Path, files: dict[str, str], error: str
) -> None:
    honest = found(tmp_path / "1", files, verifier_result=None, exception_info=failed(error))
    assert (honest.trial.verdict, honest.trial.exception) == (None, error)
    assert honest.follows
    claimed = found(tmp_path / "2", files)
    assert (claimed.trial.verdict, claimed.trial.exception) == (None, error)
    assert (claimed.basis, claimed.follows) == (Basis.REWARD_FILE, False)


def test_the_first_exception_stays(tmp_path: Path) -> None:
    trial = found(tmp_path, {}, exception_info=failed("AgentTimeoutError"))
    assert (trial.trial.exception, trial.trial.verdict) == ("AgentTimeoutError", None)


def test_a_directory_in_place_of_the_reward_file_is_an_error_and_no_crash(tmp_path: Path) -> None:
    directory = write_trial(tmp_path, "a__1", {})
    (directory / "verifier" / "reward.txt").mkdir()
    trial = load_trial(str(directory), DEFAULT_PROFILE)
    assert trial.trial.exception == "IsADirectoryError"
    assert isinstance(trial.evidence, Unscored)


def test_a_verifier_that_said_null_has_a_verdict_without_rewards(tmp_path: Path) -> None:
    trial = found(tmp_path, {"reward.json": "null"}, verifier_result={"rewards": None})
    assert (trial.trial.verdict, trial.trial.exception) == (Verdict(None), None)
    assert trial.follows
    assert not found(tmp_path / "2", {"reward.json": "null"}, verifier_result=None).follows


def test_a_claimed_null_of_a_users_own_verifier_counts_as_null(tmp_path: Path) -> None:
    config = {"verifier": {"import_path": "mine:Verifier"}}
    trial = found(tmp_path, {}, config=config, verifier_result={"rewards": None})
    assert trial.trial.verdict == Verdict(None)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_null_claims_any_reward_that_is_not_finite(tmp_path: Path, text: str) -> None:
    claimed = rewarded(reward=None)
    trial = found(tmp_path, {"reward.txt": text}, verifier_result=claimed)
    assert trial.follows
    assert trial.trial.verdict is not None
    assert repr(trial.trial.verdict.rewards) == f"{{'reward': {text}}}"


def test_a_claimed_null_reward_that_no_file_explains_counts_as_nan(tmp_path: Path) -> None:
    config = {"verifier": {"import_path": "mine:Verifier"}}
    trial = found(tmp_path, {}, config=config, verifier_result=rewarded(reward=None, b=2))
    assert trial.trial.verdict is not None
    rewards = trial.trial.verdict.rewards or {}
    assert math.isnan(rewards["reward"])
    assert rewards["b"] == 2


def test_the_profile_decides_what_a_file_is_worth(tmp_path: Path) -> None:
    directory = write_trial(tmp_path, "a__1", {"reward.json": '{"reward": "1"}'})
    assert load_trial(str(directory), DEFAULT_PROFILE).trial.exception is None
    refused = load_trial(str(directory), HARBOR_0_25)
    assert refused.trial.exception == "VerifierOutputParseError"


def test_a_key_with_half_a_surrogate_pair_is_claimed_as_harbor_writes_it(tmp_path: Path) -> None:
    claimed = {"rewards": {"\ufffd\ufffd\ufffd": 1, "b": 0}}
    files = {"reward.json": '{"\\ud800": 1, "b": 0}'}
    assert found(tmp_path, files, verifier_result=claimed).follows
    assert not found(tmp_path / "2", files, verifier_result=rewarded(x=1, b=0)).follows


def test_a_directory_without_a_usable_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"a/result\.json: cannot be read: No such file"):
        load_trial(str(tmp_path / "a"), DEFAULT_PROFILE)


def test_every_basis_is_said_in_words() -> None:
    assert [str(basis) for basis in Basis] == ["reward file", "step reward files", "trial result"]


# Claims


@pytest.mark.parametrize(
    ("claimed", "counted", "same"),
    [
        (None, None, True),
        (None, Verdict(None), False),
        (VerifierDocument(None), None, False),
        (VerifierDocument(None), Verdict(None), True),
        (VerifierDocument(None), Verdict({}), False),
        (VerifierDocument({}), Verdict(None), False),
        (VerifierDocument({}), Verdict({}), True),
        (VerifierDocument({"a": 1}), Verdict({"a": 1}), True),
        (VerifierDocument({"a": 1}), Verdict({"a": 1.0}), False),
        (VerifierDocument({"a": 0.0}), Verdict({"a": -0.0}), False),
        (VerifierDocument({"a": 1}), Verdict({"b": 1}), False),
        (VerifierDocument({"a": 1}), Verdict({"a": 1, "b": 1}), False),
        (VerifierDocument({"a": 1, "b": 2}), Verdict({"b": 2, "a": 1}), True),
        (VerifierDocument({"a": None}), Verdict({"a": math.nan}), True),
        (VerifierDocument({"a": None}), Verdict({"a": -math.inf}), True),
        (VerifierDocument({"a": None}), Verdict({"a": 0.0}), False),
        (VerifierDocument({"a": None, "b": 1}), Verdict({"a": math.nan, "b": 0}), False),
        (VerifierDocument({"a": 10**400}), Verdict({"a": 10**400}), True),
        (VerifierDocument({"a": 0}), Verdict({"a": math.nan}), False),
    ],
)
def test_a_claim_is_the_same_only_in_type_and_bits(
    claimed: VerifierDocument | None, counted: Verdict | None, same: bool
) -> None:
    assert claims_same(claimed, counted) is same


# Usage


def test_usage_comes_from_the_steps_when_the_trial_has_none(tmp_path: Path) -> None:
    steps = [
        {"step_name": "s1", "agent_result": {"n_input_tokens": 1, "cost_usd": 0.1}},
        {"step_name": "s2"},
        {"step_name": "s3", "agent_result": {"n_input_tokens": 2, "cost_usd": 0.2}},
    ]
    both = found(tmp_path, step_results=steps, agent_result={"n_output_tokens": 9})
    assert both.trial.usage == Usage(n_output_tokens=9)
    stepped = found(tmp_path / "2", step_results=steps)
    assert stepped.trial.usage == Usage(3, None, None, 0.1 + 0.2)


def test_usage_that_nobody_reported_is_none_and_not_zero(tmp_path: Path) -> None:
    assert found(tmp_path).trial.usage == NO_USAGE
    empty = {"n_input_tokens": None, "cost_usd": None}
    assert found(tmp_path / "2", agent_result=empty).trial.usage == NO_USAGE
    zero = found(tmp_path / "3", agent_result={"n_cache_tokens": 0}).trial.usage
    assert (zero.n_cache_tokens, zero.n_input_tokens) == (0, None)


# Steps


def write_steps(
    job: Path, steps: list[tuple[str, dict[str, str], Any]], **changes: Any
) -> FoundTrial:
    """A multi-step trial: each step with its name, its files and the verifier result it claims."""
    results = [{"step_name": name, "verifier_result": claimed} for name, _, claimed in steps]
    directory = write_trial(job, "a__1", {}, **{"step_results": results} | changes)
    for name, files, _ in steps:
        write_rewards(directory / "steps" / name, files)
    return load_trial(str(directory), DEFAULT_PROFILE)


TWO_STEPS = [
    ("one", {"reward.txt": "1"}, rewarded(reward=1.0)),
    ("two", {"reward.txt": "0.5"}, rewarded(reward=0.5)),
]


@pytest.mark.parametrize(
    ("claimed", "strategy", "reward", "follows"),
    [(0.75, "mean", 0.75, True), (0.5, "final", 0.5, True), (0.6, "mean", 0.75, False)],
)
def test_the_strategy_is_the_one_that_gives_the_claim(
    tmp_path: Path, claimed: float, strategy: str, reward: float, follows: bool
) -> None:
    trial = write_steps(tmp_path, TWO_STEPS, verifier_result=rewarded(reward=claimed))
    assert (trial.strategy, trial.follows) == (strategy, follows)
    assert trial.trial.verdict == Verdict({"reward": reward})
    assert (trial.basis, trial.evidence) == (Basis.STEP_FILES, Scored({"reward": reward}))


def test_where_both_strategies_give_the_claim_it_is_mean(tmp_path: Path) -> None:
    steps = [TWO_STEPS[0]]
    assert write_steps(tmp_path, steps, verifier_result=rewarded(reward=1.0)).strategy == "mean"


def test_a_whole_number_tells_final_from_mean(tmp_path: Path) -> None:
    steps = [("one", {"reward.json": '{"reward": 1}'}, rewarded(reward=1))]
    assert write_steps(tmp_path, steps, verifier_result=rewarded(reward=1)).strategy == "final"


def test_a_step_counts_by_its_file_and_not_by_its_claim(tmp_path: Path) -> None:
    steps = [("one", {"reward.txt": "0"}, rewarded(reward=1.0)), TWO_STEPS[1]]
    trial = write_steps(tmp_path, steps, verifier_result=rewarded(reward=0.75))
    assert trial.trial.verdict == Verdict({"reward": 0.25})
    assert not trial.follows


def test_steps_of_one_name_count_as_they_claim(tmp_path: Path) -> None:
    """They share a directory: only the last one's files are left."""
    claims = [{"step_name": "one", "verifier_result": rewarded(reward=r)} for r in (1.0, 0.5)]
    directory = write_trial(tmp_path, "a__1", step_results=claims)
    write_rewards(directory / "steps" / "one", {"reward.txt": "0.25"})
    weighed = weigh_steps(
        str(directory),
        TRIAL.load(f"{directory}/result.json").step_results or [],
        VerifierConfig(),
        DEFAULT_PROFILE,
    )
    assert [found.verdict for _, found in weighed] == [
        Verdict({"reward": 1.0}),
        Verdict({"reward": 0.5}),
    ]
    assert all(found.overwritten and not found.by_file for _, found in weighed)
    assert load_trial(str(directory), DEFAULT_PROFILE).trial.verdict == Verdict({"reward": 0.75})


def test_the_keys_of_a_mean_stand_in_the_order_they_were_claimed(tmp_path: Path) -> None:
    files = {"reward.json": '{"a": 1, "b": 2, "\\ud800": 3}'}
    steps: list[tuple[str, dict[str, str], Any]] = [("one", files, {"rewards": {}})]
    claimed = {"rewards": {"\ufffd\ufffd\ufffd": 3.0, "b": 2.0, "a": 1.0}}
    trial = write_steps(tmp_path, steps, verifier_result=claimed)
    assert trial.trial.verdict is not None
    assert list(trial.trial.verdict.rewards or ()) == ["\ud800", "b", "a"]
    assert trial.follows
    other = write_steps(tmp_path / "2", steps, verifier_result=rewarded(c=1.0))
    assert other.trial.verdict is not None
    assert list(other.trial.verdict.rewards or ()) == ["a", "b", "\ud800"]


def test_a_step_whose_verifier_failed_does_not_count(tmp_path: Path) -> None:
    results = [
        {"step_name": "one", "verifier_result": rewarded(reward=1.0)},
        {"step_name": "two", "exception_info": failed("TimeoutError")},
    ]
    trial = write_steps(
        tmp_path,
        [TWO_STEPS[0], ("two", {"reward.txt": "0"}, None)],
        step_results=results,
        verifier_result=rewarded(reward=1.0),
    )
    assert (trial.follows, trial.strategy) == (True, "mean")
    assert trial.trial.exception is None


def test_a_step_with_an_exception_that_was_verified_counts(tmp_path: Path) -> None:
    claimed = rewarded(reward=1.0)
    results = [
        {
            "step_name": "one",
            "verifier_result": claimed,
            "exception_info": failed("AgentTimeoutError"),
        }
    ]
    trial = write_steps(tmp_path, [TWO_STEPS[0]], step_results=results, verifier_result=claimed)
    assert trial.trial.verdict == Verdict({"reward": 1.0})


def test_a_trial_that_broke_off_between_steps_has_no_rewards(tmp_path: Path) -> None:
    broken_off = failed("CancelledError")
    trial = write_steps(tmp_path, TWO_STEPS, exception_info=broken_off, verifier_result=None)
    assert (trial.trial.verdict, trial.trial.exception) == (None, "CancelledError")
    assert (trial.basis, trial.evidence, trial.strategy) == (Basis.TRIAL_RESULT, None, None)
    assert trial.follows


def test_a_multi_step_trial_that_failed_after_its_verdict_keeps_it(tmp_path: Path) -> None:
    claimed = rewarded(reward=0.75)
    trial = write_steps(
        tmp_path, TWO_STEPS, exception_info=failed("RuntimeError"), verifier_result=claimed
    )
    assert (trial.trial.verdict, trial.basis) == (Verdict({"reward": 0.75}), Basis.STEP_FILES)


def test_a_multi_step_trial_without_steps_has_no_verdict(tmp_path: Path) -> None:
    trial = write_steps(tmp_path, [], verifier_result=None)
    assert (trial.trial.verdict, trial.evidence, trial.follows) == (None, None, True)


@pytest.mark.parametrize("name", ["a b", "é", "..x", "a/b", "-", "a" * 200, "$(reboot)", "?"])
def test_a_step_of_any_name_is_found(tmp_path: Path, name: str) -> None:
    steps = [(name, {"reward.txt": "0.5"}, rewarded(reward=1.0))]
    trial = write_steps(tmp_path, steps, verifier_result=rewarded(reward=1.0))
    assert trial.trial.verdict == Verdict({"reward": 0.5})


@pytest.mark.parametrize("name", ["..", "../..", "../../../b__2", "a/../../..", "a\0b"])
def test_no_name_of_a_step_leads_out_of_the_steps(tmp_path: Path, name: str) -> None:
    step = {"step_name": name, "verifier_result": rewarded(reward=1.0)}
    job = tmp_path / "jobs" / "job"
    directory = write_trial(job, "a__1", TEXT, step_results=[step])
    (directory / "steps" / "a").mkdir(parents=True)
    for outside in (job, job / "b__2", job.parent, job.parent / "b__2"):
        write_rewards(outside, TEXT)
    assert load_trial(str(directory), DEFAULT_PROFILE).trial.verdict is None


def test_an_absolute_step_name_is_not_followed(tmp_path: Path) -> None:
    write_rewards(tmp_path / "outside", {"reward.txt": "0.5"})
    step = {"step_name": str(tmp_path / "outside"), "verifier_result": rewarded(reward=1.0)}
    directory = write_trial(tmp_path / "job", "a__1", {}, step_results=[step])
    assert load_trial(str(directory), DEFAULT_PROFILE).trial.verdict is None


def test_a_whole_number_too_large_for_a_float_is_no_lost_number(tmp_path: Path) -> None:
    claimed = VerifierDocument({"reward": None})
    assert not claims_same(claimed, Verdict({"reward": 10**400}))
