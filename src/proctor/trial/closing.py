"""The end of a trial: its findings, its record, and last of all its result."""

import os
from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from proctor.errors import RecordError, TrialError
from proctor.harbor.trial_result import render_trial_result
from proctor.trial.finding import FindingCode
from proctor.trial.opening import render_config
from proctor.trial.recording import LONGEST_TRACE, find_overlong, find_traces, load_trace
from proctor.trial.sitting import Sitting
from proctor.trial.solution import look_for_solution


async def close_files(sitting: Sitting) -> None:
    """Write what came of a trial; result.json is there whole, or not at all.

    Raises:
        OSError: it cannot be written; the result at hand says so too.
    """
    sitting.watch("record")
    if sitting.is_started and not os.path.lexists(sitting.paths.config_path):
        sitting.fail(
            TrialError(
                f"{sitting.paths.trial_dir}: removed while the trial ran; what lay in it until "
                "then is lost"
            )
        )
    traces = find_traces(sitting.plan.place)
    _find_overlong_traces(sitting, traces)
    if sitting.result.finished_at is None:
        sitting.result.finished_at = sitting.clock.now()
    try:
        sitting.write_findings()
        trace = await load_trace(sitting.plan.place, traces)
        if trace is not None and await look_for_solution(sitting, trace):
            sitting.write_findings()
        sitting.recording.finish(sitting.result, sitting.find_watched(), trace)
    except (RecordError, ValidationError) as error:
        sitting.logger.warning("the record stays as it was in the last phase: %s", error)
    except OSError as error:
        sitting.fail(error)
    finally:
        try:
            _write_result(sitting)
        finally:
            sitting.recording.file.close()


def _find_overlong_traces(sitting: Sitting, sizes: Mapping[str, int]) -> None:
    for name in find_overlong(sizes):
        size = sizes[name]
        sitting.add_finding(
            FindingCode.FILES_REFUSED,
            f"{name} has {size:,} bytes: it is kept, but not read for the record, because it has "
            f"more than {LONGEST_TRACE:,}",
            file=name,
            size=size,
        )


def _write_result(sitting: Sitting) -> None:
    config = render_config(sitting.plan)
    try:
        text = render_trial_result(sitting.result, config)
    except PydanticSerializationError as error:
        # What an agent says beside its figures is the one thing here that may hold anything.
        sitting.fail(error)
        for context in sitting.result.contexts:
            context.rollout_details = context.metadata = None
        text = render_trial_result(sitting.result, config)
    if sitting.redactor is not None:
        text = sitting.redactor.redact_text(text.decode()).encode()
    sitting.recording.file.give_other(f"{sitting.plan.place}/result.json", text)
