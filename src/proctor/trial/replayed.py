"""Reads from a trial's result.json how its requests were answered from a recording."""

import msgspec

from proctor.errors import JobError
from proctor.harbor.documents import DETAILS
from proctor.trial.models import REPLAY_KEY, ReplayUse


def load_replay_uses(path: str) -> list[ReplayUse]:
    """Load how requests were answered, one for each step; empty if models were asked."""
    try:
        result = DETAILS.load(path)
        reports = [result.agent_result, *(step.agent_result for step in result.step_results or ())]
        found = [(report.metadata or {}).get(REPLAY_KEY) for report in reports if report]
        return [msgspec.convert(each, ReplayUse) for each in found if each is not None]
    except (JobError, msgspec.ValidationError):
        return []


def find_first_difference(uses: list[ReplayUse]) -> str | None:
    """Return a sentence about the first request that differs, or that was not repeated."""
    differences = (use.difference for use in uses)
    return next(filter(None, differences), uses[-1].unasked if uses else None)
