"""Step reward files against what the steps of a trial claim, and those against the trial."""

import os
from collections.abc import Iterator, Sequence

from proctor.audit.findings import Finding, Kind
from proctor.audit.shown import error_left, is_reward_error, show_claim, show_verdict
from proctor.harbor.documents import StepDocument
from proctor.harbor.trial import FoundTrial, Weighed, claims_same, weigh_steps
from proctor.reward.profile import Profile
from proctor.reward.score import Scored, Unscored
from proctor.reward.steps import Verdict


def audit_steps(found: FoundTrial, profile: Profile) -> Iterator[Finding]:
    """Findings about the steps of one trial."""
    steps = found.document.step_results or []
    config = found.document.config.verifier
    for step, weighed in weigh_steps(found.directory, steps, config, profile):
        if weighed.overwritten:
            message = f"steps share the name {step.step_name} and its files; what they claim counts"
            yield Finding(Kind.NO_REWARD_FILES, f"{found.directory}/steps", message)
        if weighed.by_file:
            yield from _audit_step(found, step, weighed)
        else:
            yield from _audit_unweighed_step(found, step, weighed)
    yield from _audit_course(found, steps)
    if not found.follows:
        claimed, counted = show_claim(found.claimed), show_verdict(found.trial.verdict)
        message = f"the trial claims {claimed}; the mean of its steps is {counted}"
        path = f"{found.directory}/result.json"
        yield Finding(Kind.EDITED_STEP_TOTAL, path, message, claimed, counted)


def _audit_step(found: FoundTrial, step: StepDocument, weighed: Weighed) -> Iterator[Finding]:
    path = f"{found.directory}/result.json"
    if claims_same(step.verifier_result, weighed.verdict):
        if step.verifier_result is None:
            left = error_left(weighed.evidence)
            message = (
                f"step {step.step_name} has neither rewards nor an exception; its files give {left}"
            )
            yield Finding(Kind.EDITED_EXCEPTION, path, message, "none", left)
        return
    claimed, counted = show_claim(step.verifier_result), show_verdict(weighed.verdict)
    match weighed.evidence:
        case Unscored(reason=reason, error="LinkedRewardError"):
            yield Finding(Kind.LINKED_FILE, path, f"step {step.step_name}: {reason}", claimed)
            return
    held = f"its reward file holds {counted}" if weighed.evidence else "it has no reward file"
    message = f"step {step.step_name} claims {claimed}, {held}"
    kind = Kind.EDITED_STEP_REWARD if weighed.evidence else Kind.MISSING_REWARD_FILE
    yield Finding(kind, path, message, claimed, counted)


def _audit_unweighed_step(
    found: FoundTrial, step: StepDocument, weighed: Weighed
) -> Iterator[Finding]:
    path, name = f"{found.directory}/result.json", step.step_name
    verifier = found.document.config.verifier
    claimed = show_claim(step.verifier_result)
    if verifier.disable and step.verifier_result is not None:
        message = f"step {name} claims {claimed}, and verification was disabled"
        yield Finding(Kind.EDITED_STEP_REWARD, path, message, claimed, "nothing")
    recorded = step.exception_info.exception_type if step.exception_info else None
    left = error_left(weighed.evidence)
    verified = step.verifier is not None and not weighed.overwritten
    by_files = verified and verifier.import_path is None
    if by_files and is_reward_error(step.exception_info) and left != recorded:
        message = f"step {name} records {recorded}; its reward files give {left}"
        yield Finding(Kind.EDITED_EXCEPTION, path, message, str(recorded), left)
    elif isinstance(weighed.evidence, Scored):
        why = recorded or "verification was disabled"
        held = show_verdict(Verdict(weighed.evidence.rewards))
        message = f"step {name}: the reward file holds {held}, which does not count: {why}"
        yield Finding(Kind.UNUSED_REWARD_FILE, path, message)
    elif verifier.import_path and step.verifier_result is not None and not weighed.overwritten:
        message = f"step {name}: rewards of the custom verifier {verifier.import_path}; "
        yield Finding(Kind.NO_REWARD_FILES, path, f"{message}it left no reward file")


def _audit_course(found: FoundTrial, steps: Sequence[StepDocument]) -> Iterator[Finding]:
    """A trial ends with the first step that fails unverified."""
    path = f"{found.directory}/result.json"
    for step in steps[:-1]:
        if step.exception_info is not None and step.verifier_result is None:
            message = f"step {step.step_name} failed unverified, and steps follow it"
            yield Finding(Kind.EDITED_STEP_TOTAL, path, message, step.step_name, "the last step")
    yield from audit_listed(found, steps)


def audit_listed(found: FoundTrial, steps: Sequence[StepDocument]) -> Iterator[Finding]:
    """Every step that was run is one of these."""
    path = f"{found.directory}/result.json"
    listed = {step.step_name.split("/")[0] for step in steps}
    for name in sorted(_directories_in(f"{found.directory}/steps") - listed):
        message = f"steps/{name} was run, and the trial result has no such step"
        yield Finding(Kind.EDITED_STEP_TOTAL, path, message, "no such step", name)


def _directories_in(path: str) -> set[str]:
    try:
        with os.scandir(path) as entries:
            return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    except OSError:
        return set()
