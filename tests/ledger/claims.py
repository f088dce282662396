"""Sealed scores to claim, and claims to meddle with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.ledger.claims.claim import Claim, ClaimOptions, make_claim
from proctor.ledger.claims.document import render_document
from proctor.ledger.claims.trials import Scope
from proctor.ledger.entry import Cause, Subject, SupersedeEntry, TrialScore
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import Submission, seal
from tests.ledger.ledgers import EXPERIMENT, record_bytes

PROFILE = "harbor-0.13.1"
WHOLE = ClaimOptions(scope=Scope(EXPERIMENT))


def certificate_of(trial: str, rewards: Mapping[str, int | float] | None) -> dict[str, Any]:
    """What is sealed beside a trial that harbor ran."""
    written: dict[str, int | str] | None = (
        None
        if rewards is None
        else {
            key: value.hex() if isinstance(value, float) else value
            for key, value in rewards.items()
        }
    )
    return {
        "job": 0,
        "trial": trial,
        "task": trial.split("__")[0],
        "rewards": written,
        "basis": "reward file",
        "exception": None if rewards else "AgentTimeoutError",
        "group": "claude-code__opus__tb",
    }


def marked(trial: str, rewards: Mapping[str, int | float] | None, **changes: object) -> Submission:
    """A trial with its marks; no rewards are an errored one."""
    reward = None if rewards is None else next(iter(rewards.values()))
    changes = {"evaluation.reward": reward, "evaluation.breakdown": rewards, **changes}
    score = TrialScore(profile=PROFILE, certificate=certificate_of(trial, rewards))
    return Submission(record=record_bytes(trial, **changes), where=trial, score=score)


def seal_marked(ledger: OpenLedger, marks: Mapping[str, float | None], **changes: object) -> None:
    """Trials with one reward each."""
    seal(
        ledger,
        [
            marked(trial, None if reward is None else {"reward": reward}, **changes)
            for trial, reward in marks.items()
        ],
    )


def subject(ledger: OpenLedger, trial: str) -> Subject:
    """A sealed trial as other entries name it."""
    ledger.refresh()
    found = ledger.find_sealed(EXPERIMENT, trial)
    assert found is not None
    return Subject(experiment_id=EXPERIMENT, trial_id=trial, record=found.record)


def supersede(ledger: OpenLedger, trial: str, by: str, cause: Cause = "infrastructure") -> None:
    """Say that another trial stands in."""
    entry = SupersedeEntry(
        at="",
        seq=0,
        subject=subject(ledger, trial),
        by=subject(ledger, by),
        cause=cause,
        reason="the machine went down",
        author="me",
    )
    with ledger.writing():
        ledger.append([entry])


def claim_of(ledger: OpenLedger, options: ClaimOptions = WHOLE) -> Claim:
    """A claim under the newest checkpoint."""
    return make_claim(ledger, options, ledger.refresh())


def write_claim(path: Path, claim: Claim) -> Path:
    """The claim in a file."""
    path.write_bytes(render_document(claim))
    return path


def edit(path: Path, *steps: str | int, value: object) -> Path:
    """Change one place of a JSON document."""
    document = json.loads(path.read_bytes())
    place = document
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    path.write_text(json.dumps(document))
    return path
