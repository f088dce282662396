"""One trial directory as a value: what counts, and which file it was read from.

    <trial>/
      result.json                  harbor's result; written once, at the end
      config.json                  its configuration
      verifier/reward.txt|json     the verifier's rewards
      steps/<name>/verifier/…      the same per step, for multi-step tasks

The reward files are the evidence; the trial result is a claim about them. The evidence counts if
verification ended without an exception; otherwise the claim counts, because a stopped verifier may
leave a file that was never meant to count. A link is followed only if it stays inside the trial's
directory.
"""

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from proctor.harbor.documents import (
    TRIAL,
    StepDocument,
    TrialDocument,
    UsageDocument,
    VerifierConfig,
    VerifierDocument,
    WrittenRewards,
    find_profile,
)
from proctor.harbor.render import written_text
from proctor.harbor.stats import NO_USAGE, Trial, Usage, total_usage
from proctor.record.reasons import ReasonCode, reason_for_exception
from proctor.reward.number import Rewards, is_finite, same_number
from proctor.reward.profile import DEFAULT_PROFILE, Profile
from proctor.reward.read import read_score
from proctor.reward.score import Score, Scored, Unscored
from proctor.reward.steps import Step, Strategy, Verdict, trial_verdict


class Basis(StrEnum):
    """Where a trial's rewards were taken from."""

    REWARD_FILE = "reward file"
    STEP_FILES = "step reward files"
    TRIAL_RESULT = "trial result"


class FoundTrial(msgspec.Struct, frozen=True, gc=False):
    """A trial in a job directory."""

    directory: str
    document: TrialDocument
    """result.json, which claims rewards."""
    trial: Trial
    """The values that count."""
    basis: Basis
    evidence: Score | None
    """Score from the reward files, read even if they do not count; None if there are none."""
    strategy: Strategy | None = None
    """How the steps were combined; inferred, because the job does not record it."""
    profile: Profile = DEFAULT_PROFILE
    """The rules by which its rewards were read."""

    @property
    def claimed(self) -> VerifierDocument | None:
        """The verifier result claimed by the trial result."""
        return self.document.verifier_result

    @property
    def reason(self) -> str | None:
        """Reason code for a missing reward; None if it has one."""
        if self.trial.verdict is not None and self.trial.verdict.rewards:
            return None
        return str(reason_for_exception(self.trial.exception) or ReasonCode.HARBOR_REWARD_MISSING)

    @property
    def follows(self) -> bool:
        """Whether the claimed rewards are the ones that count."""
        return claims_same(self.claimed, self.trial.verdict)


def load_trial(directory: str, profile: Profile | None = None) -> FoundTrial:
    """Load the trial in a directory that has a result.json.

    Without a profile, its rewards are read as by the harbor that ran it.
    """
    document = TRIAL.load(f"{directory}/result.json")
    profile = profile or find_profile(directory)
    if document.step_results is not None:
        return _found_steps(directory, document, document.step_results, profile)
    return _found_single(directory, document, profile)


class Weighed(msgspec.Struct, frozen=True, gc=False):
    """A verification, with its files compared with the claim."""

    verdict: Verdict | None
    """The verdict that counts."""
    evidence: Score | None
    """Score from the reward files; None if there are none."""
    by_file: bool
    """Whether the files decided, not the claim."""
    overwritten: bool = False
    """Whether a later step of the same name has replaced the files."""


def weigh(
    trial: str,
    verifier_dir: str,
    claimed: VerifierDocument | None,
    config: VerifierConfig,
    profile: Profile,
    *,
    failed: bool,
) -> Weighed:
    """Decide what a verification counts for.

    Its files decide if it ended without an exception. After an exception of the agent verification
    continues, and an exception while stopping the environment comes after it: in both cases the
    trial records a claim next to the exception.
    """
    evidence = _find_evidence(trial, verifier_dir, profile)
    own_way = evidence is None and config.import_path is not None
    if config.disable or own_way or (failed and claimed is None):
        return Weighed(_claimed_verdict(claimed), evidence, by_file=False)
    return Weighed(_verdict_of(evidence), evidence, by_file=True)


def weigh_steps(
    directory: str, steps: Sequence[StepDocument], config: VerifierConfig, profile: Profile
) -> list[tuple[StepDocument, Weighed]]:
    """Decide what each step's verification counts for.

    Of steps with the same name only the last one's files are left, so their claims count.
    """
    names = Counter(step.step_name for step in steps)
    weighed = []
    for step in steps:
        if names[step.step_name] > 1:
            verdict = _claimed_verdict(step.verifier_result)
            weighed.append((step, Weighed(verdict, None, by_file=False, overwritten=True)))
            continue
        verifier_dir = f"{directory}/{verifier_folder(step.step_name)}"
        failed = step.exception_info is not None
        found = weigh(directory, verifier_dir, step.verifier_result, config, profile, failed=failed)
        weighed.append((step, found))
    return weighed


def verifier_folder(step: str) -> str:
    """Directory of a step's verifier files, relative to the trial's directory."""
    # Names that lead out of the steps directory, or are invalid, can only be forged.
    is_odd = "\0" in step or step.startswith("/") or ".." in step.split("/")
    return f"steps/{'?' if is_odd else step}/verifier"


def _found_single(directory: str, document: TrialDocument, profile: Profile) -> FoundTrial:
    failed = document.exception_info is not None
    config, claimed = document.config.verifier, document.verifier_result
    verifier_dir = f"{directory}/verifier"
    weighed = weigh(directory, verifier_dir, claimed, config, profile, failed=failed)
    error = _error_of(weighed.evidence) if weighed.by_file else None
    basis = Basis.REWARD_FILE if weighed.by_file else Basis.TRIAL_RESULT
    trial = _trial(document, weighed.verdict, error)
    return FoundTrial(directory, document, trial, basis, weighed.evidence, profile=profile)


def _found_steps(
    directory: str, document: TrialDocument, steps: list[StepDocument], profile: Profile
) -> FoundTrial:
    """A multi-step trial. Its strategy is not recorded: the one that gives the claim is used."""
    if document.exception_info is not None and document.verifier_result is None:
        # The trial failed between steps: harbor then gives it no rewards, whatever its steps have.
        trial = _trial(document, None)
        return FoundTrial(directory, document, trial, Basis.TRIAL_RESULT, None, profile=profile)
    config = document.config.verifier
    executed = [
        Step(
            step.step_name,
            weighed.verdict,
            step.exception_info.exception_type if step.exception_info else None,
        )
        for step, weighed in weigh_steps(directory, steps, config, profile)
    ]
    by_mean, by_final = trial_verdict(executed, "mean"), trial_verdict(executed, "final")
    claimed = document.verifier_result
    final = claims_same(claimed, by_final) and not claims_same(claimed, by_mean)
    strategy: Strategy = "final" if final else "mean"
    verdict = _in_claimed_order(by_final if final else by_mean, claimed)
    evidence = Scored(verdict.rewards) if verdict and verdict.rewards is not None else None
    trial = _trial(document, verdict)
    return FoundTrial(directory, document, trial, Basis.STEP_FILES, evidence, strategy, profile)


def _in_claimed_order(verdict: Verdict | None, claimed: VerifierDocument | None) -> Verdict | None:
    # harbor orders the keys of a mean by set order, which only the claim records.
    rewards = verdict.rewards if verdict else None
    written = claimed.rewards if claimed else None
    if not rewards or not written:
        return verdict
    keys = {written_text(key): key for key in rewards}
    if keys.keys() != written.keys():
        return verdict
    return Verdict({keys[key]: rewards[keys[key]] for key in written})


def _find_evidence(trial: str, verifier_dir: str, profile: Profile) -> Score | None:
    score = read_score(verifier_dir, profile, trial)
    if isinstance(score, Unscored) and score.error == "RewardFileNotFoundError":
        return None
    return score


def _verdict_of(evidence: Score | None) -> Verdict | None:
    match evidence:
        case Scored(rewards):
            return Verdict(rewards)
        case Unscored(error=None):
            return Verdict(None)
        case _:
            return None


def _error_of(evidence: Score | None) -> str | None:
    """The exception that harbor records for these reward files."""
    match evidence:
        case None:
            return "RewardFileNotFoundError"
        case Unscored(error=error):
            return error
        case _:
            return None


def _claimed_verdict(claimed: VerifierDocument | None) -> Verdict | None:
    if claimed is None:
        return None
    if claimed.rewards is None:
        return Verdict(None)
    # null is nan or infinite; which one is lost, but a mean is invalid either way.
    return Verdict(
        {key: math.nan if value is None else value for key, value in claimed.rewards.items()}
    )


def claims_same(claimed: VerifierDocument | None, verdict: Verdict | None) -> bool:
    """Whether a claimed verifier result is this verdict as harbor writes it."""
    if claimed is None or verdict is None:
        return claimed is None and verdict is None
    if claimed.rewards is None or verdict.rewards is None:
        return claimed.rewards is None and verdict.rewards is None
    return _written_same(claimed.rewards, verdict.rewards)


def _written_same(written: WrittenRewards, rewards: Rewards) -> bool:
    if written.keys() != rewards.keys():
        # Lone surrogates in keys are replaced when harbor writes them.
        rewards = {written_text(key): value for key, value in rewards.items()}
        if written.keys() != rewards.keys():
            return False
    for key, value in rewards.items():
        found = written[key]
        if found is None:
            if is_finite(value):
                return False
        elif not same_number(found, value):
            return False
    return True


def claimed_trial(document: TrialDocument) -> Trial:
    """What counts of a trial if its claim is accepted, as when harbor resumes a job."""
    return _trial(document, _claimed_verdict(document.verifier_result))


def _trial(document: TrialDocument, verdict: Verdict | None, error: str | None = None) -> Trial:
    """What counts of a trial. A recorded exception takes precedence, as harbor keeps the first."""
    info = document.agent_info
    recorded = document.exception_info
    return Trial(
        name=document.trial_name,
        task=document.task_name,
        agent=info.name,
        model=info.model_info.name if info.model_info else None,
        source=document.source,
        verdict=verdict,
        exception=recorded.exception_type if recorded else error,
        usage=_usage_of(document),
    )


def _usage_of(document: TrialDocument) -> Usage:
    if document.agent_result is not None:
        return _usage(document.agent_result)
    steps = document.step_results or ()
    return total_usage(_usage(step.agent_result) for step in steps if step.agent_result is not None)


def _usage(result: UsageDocument) -> Usage:
    usage = Usage(
        result.n_input_tokens, result.n_cache_tokens, result.n_output_tokens, result.cost_usd
    )
    return NO_USAGE if usage == NO_USAGE else usage
