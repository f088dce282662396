"""Compare reward files with trial results: does each claim follow from what the verifier wrote?"""

import os
from collections.abc import Iterator, Sequence

from proctor.audit.findings import Finding, Kind
from proctor.audit.shown import (
    REWARD_ERRORS,
    error_left,
    is_reward_error,
    show_both,
    show_claim,
    show_verdict,
)
from proctor.files import read_inside
from proctor.harbor.documents import StepDocument
from proctor.harbor.job import Job
from proctor.harbor.render import render_json
from proctor.harbor.trial import Basis, FoundTrial, Weighed, claims_same, weigh_steps
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
        parts = show_both(found.claimed, found.trial.verdict)
        message = f"the trial claims {parts[0]}; the mean of its steps is {parts[1]}"
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
    stated, evidence = show_both(step.verifier_result, weighed.verdict)
    held = f"its reward file holds {evidence}" if weighed.evidence else "it has no reward file"
    message = f"step {step.step_name} claims {stated}, {held}"
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
    """A trial must end with the first step that fails without being verified."""
    path = f"{found.directory}/result.json"
    for step in steps[:-1]:
        if step.exception_info is not None and step.verifier_result is None:
            message = f"step {step.step_name} failed unverified, and steps follow it"
            yield Finding(Kind.EDITED_STEP_TOTAL, path, message, step.step_name, "the last step")
    yield from audit_listed(found, steps)


def audit_listed(found: FoundTrial, steps: Sequence[StepDocument]) -> Iterator[Finding]:
    """Every step that was run must be listed."""
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


def audit_trials(job: Job, profile: Profile) -> Iterator[Finding]:
    """Findings about each trial by itself."""
    for problem in job.broken:
        kind = Kind.LINKED_FILE if problem.is_linked else Kind.TORN_FILE
        yield Finding(kind, f"{problem.path}/result.json", problem.message)
    for found in job.trials:
        if found.document.step_results is None:
            yield from audit_listed(found, ())
        yield from _audit_claim(found, profile)
        yield from _audit_exception(found)


def _audit_claim(found: FoundTrial, profile: Profile) -> Iterator[Finding]:
    if found.basis is Basis.STEP_FILES:
        yield from audit_steps(found, profile)
    elif found.basis is Basis.TRIAL_RESULT:
        yield from _audit_unweighed(found)
    elif not found.follows or found.claimed is None:
        yield _unfollowed(found)
    elif isinstance(found.evidence, Scored) and all(
        os.path.exists(f"{found.directory}/verifier/reward.{kind}") for kind in ("txt", "json")
    ):
        path = f"{found.directory}/verifier/reward.txt"
        yield Finding(Kind.UNUSED_REWARD_FILE, path, "reward.json is there too and decides")
    written = found.claimed.rewards if found.claimed else None
    lost = [key for key, value in (written or {}).items() if value is None]
    if lost:
        message = (
            f"{', '.join(lost)}: no finite number, written as null; harbor cannot read it back"
        )
        yield Finding(Kind.LOST_NUMBER, f"{found.directory}/result.json", message)


def _unfollowed(found: FoundTrial) -> Finding:
    claimed, counted = show_claim(found.claimed), show_verdict(found.trial.verdict)
    path = f"{found.directory}/result.json"
    match found.evidence:
        case Unscored(reason=reason, error="LinkedRewardError"):
            return Finding(Kind.LINKED_FILE, f"{found.directory}/verifier", reason, claimed)
        case Unscored(reason=reason, error=str(error)) if error not in REWARD_ERRORS:
            return Finding(Kind.TORN_FILE, f"{found.directory}/verifier", reason)
    if found.follows:
        left = error_left(found.evidence)
        message = f"the trial result has neither rewards nor an exception; its files give {left}"
        return Finding(Kind.EDITED_EXCEPTION, path, message, "none", left)
    if found.evidence is None:
        return Finding(
            Kind.MISSING_REWARD_FILE,
            f"{found.directory}/verifier",
            f"the trial result claims {claimed}, and no reward file is there",
            claimed,
            "a reward file",
        )
    if found.claimed is None:
        message = f"the reward file holds {counted}, and the trial result claims nothing"
        return Finding(Kind.DROPPED_REWARD, path, message, claimed, counted)
    stated, evidence = show_both(found.claimed, found.trial.verdict)
    message = f"the trial result claims {stated}, the reward file holds {evidence}"
    return Finding(Kind.EDITED_REWARD, path, message, claimed, counted)


def _audit_unweighed(found: FoundTrial) -> Iterator[Finding]:
    verifier = found.document.config.verifier
    if verifier.disable and found.claimed is not None:
        claimed, path = show_claim(found.claimed), f"{found.directory}/result.json"
        message = f"the trial result claims {claimed}, and verification was disabled"
        yield Finding(Kind.EDITED_REWARD, path, message, claimed, "nothing")
    if isinstance(found.evidence, Scored):
        held = render_json(found.evidence.rewards)
        why = found.trial.exception or "verification was disabled"
        message = f"the reward file holds {held}, which does not count: {why}"
        yield Finding(Kind.UNUSED_REWARD_FILE, f"{found.directory}/verifier", message)
    elif found.evidence is None and verifier.import_path and found.claimed is not None:
        message = f"rewards of the custom verifier {verifier.import_path}; it left no reward file"
        yield Finding(Kind.NO_REWARD_FILES, found.directory, message)


def _audit_exception(found: FoundTrial) -> Iterator[Finding]:
    """The recorded exception, exception.txt and the reward files must agree."""
    recorded = found.document.exception_info
    trace = f"{found.directory}/exception.txt"
    if recorded is None and os.path.exists(trace):
        message = "an exception was raised, and the trial result records none"
        yield Finding(Kind.EDITED_EXCEPTION, trace, message, "none", "an exception")
    if recorded is not None and not os.path.exists(trace):
        message = (
            f"the trial result records {recorded.exception_type}, and there is no exception.txt"
        )
        yield Finding(Kind.EDITED_EXCEPTION, trace, message, recorded.exception_type, "a traceback")
    elif recorded is not None and not _names_exception(trace, recorded.exception_type):
        message = f"it does not name {recorded.exception_type}, which the trial result records"
        yield Finding(Kind.EDITED_EXCEPTION, trace, message, recorded.exception_type)
    if recorded is None or not _explained_by_files(found):
        return
    left = error_left(found.evidence)
    if left != recorded.exception_type:
        message = (
            f"the trial result records {recorded.exception_type}; its reward files give {left}"
        )
        yield Finding(
            Kind.EDITED_EXCEPTION, found.directory, message, recorded.exception_type, left
        )


def _explained_by_files(found: FoundTrial) -> bool:
    """Whether the reward files alone must explain the recorded exception.

    An agent may raise one of the same name, but then verification did not start; and a custom
    verifier may raise anything.
    """
    document = found.document
    return (
        is_reward_error(document.exception_info)
        and document.verifier_result is None
        and document.step_results is None
        and document.verifier is not None
        and document.config.verifier.import_path is None
    )


def _names_exception(trace: str, exception: str) -> bool:
    try:
        data = read_inside(os.path.dirname(trace), trace)
        return exception in data.decode("utf-8", "replace")
    except OSError:
        return False
