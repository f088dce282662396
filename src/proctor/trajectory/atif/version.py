"""A document of any version as one of the version we write. Earlier ones need nothing but the name.

Of v1.8 the audio parts cannot be said: they are taken out and listed.
"""

import msgspec

from proctor.trajectory.atif.model import (
    AUDIO_VERSION,
    WRITTEN_VERSION,
    Atif,
    Content,
    ObservationResult,
    Step,
)
from proctor.trajectory.loss import Loss, render_summary


def to_written_version(atif: Atif) -> tuple[Atif, list[Loss]]:
    """The document as ATIF v1.7, and what that version has no place for."""
    losses: list[Loss] = []
    if atif.schema_version != WRITTEN_VERSION:
        why = f"documents are written as {WRITTEN_VERSION}"
        losses.append(Loss("schema_version", render_summary(atif.schema_version), why))
    made = _without_audio(atif, "", losses)
    return msgspec.structs.replace(made, schema_version=WRITTEN_VERSION), losses


def _without_audio(atif: Atif, path: str, losses: list[Loss]) -> Atif:
    steps = tuple(
        without_audio(step, f"{path}steps[{index}]", losses)
        for index, step in enumerate(atif.steps)
    )
    version = atif.schema_version
    if path and version == AUDIO_VERSION:
        # Earlier versions may stand inside a document of the version we write; this one may not.
        why = f"documents are written as {WRITTEN_VERSION}"
        losses.append(Loss(f"{path}schema_version", render_summary(version), why))
        version = WRITTEN_VERSION
    embedded = atif.subagent_trajectories
    if embedded is not None:
        embedded = tuple(
            _without_audio(each, f"{path}subagent_trajectories[{index}].", losses)
            for index, each in enumerate(embedded)
        )
    return msgspec.structs.replace(
        atif, schema_version=version, steps=steps, subagent_trajectories=embedded
    )


def without_audio(step: Step, path: str, losses: list[Loss]) -> Step:
    """A step without its audio parts; each goes to losses."""
    message = _silent(step.message, f"{path}.message", losses)
    step = msgspec.structs.replace(step, message=message)
    if step.observation is None:
        return step
    results = tuple(
        _silent_result(each, f"{path}.observation.results[{index}].content", losses)
        for index, each in enumerate(step.observation.results)
    )
    observation = msgspec.structs.replace(step.observation, results=results)
    return msgspec.structs.replace(step, observation=observation)


def _silent_result(result: ObservationResult, path: str, losses: list[Loss]) -> ObservationResult:
    if result.content is None:
        return result
    return msgspec.structs.replace(result, content=_silent(result.content, path, losses))


def _silent(content: Content, path: str, losses: list[Loss]) -> Content:
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type == "audio":
            summary = render_summary(part.source.path if part.source else None)
            why = f"{WRITTEN_VERSION} has no audio"
            losses.append(Loss(f"{path}[{index}]", summary, why))
    return tuple(part for part in content if part.type != "audio")
