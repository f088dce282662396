"""What harbor's validator demands beyond types; a document as the version we write, and as bytes.

A document of v1.0 to v1.7 is checked as harbor 0.13.1 does, one of v1.8 as harbor 0.25.0 does.
Neither minds a field of a later version in a document of an earlier one; audio alone is new to v1.8
for both. The version of the outermost document decides, as it decides which validator would take
it.

(1) a known version            (6) fields that only agent steps have
(2) at least one step          (7) no model call, no metrics
(3) step ids 1, 2, 3, …        (8) parts of content
(4) a known source             (9) results name calls of their own step
(5) ISO 8601                  (10) subagents can be found
                              (11) counts are not negative

Whether an image exists on disk is not checked. Documents are written as v1.7: earlier ones need
only another version name, audio parts of v1.8 are removed and listed as losses.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.traces.atif.model import (
    AUDIO_VERSION,
    SOURCES,
    VERSIONS,
    WRITTEN_VERSION,
    Atif,
    Content,
    ContentPart,
    MediaSource,
    ObservationResult,
    Step,
)
from proctor.traces.loss import Loss, render_summary

MOST_EMBEDDED: Final = 254
"""Documents inside one another that harbor's validator still takes."""
IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
AUDIO_TYPES: Final = frozenset(
    "audio/" + name
    for name in (
        *("wav", "x-wav", "wave", "vnd.wave", "mpeg", "mp3", "mpga", "x-mpeg", "mp4", "m4a"),
        *("x-m4a", "aac", "x-aac", "ogg", "flac", "x-flac", "webm", "aiff", "x-aiff"),
    )
)
"""What harbor 0.25.0 takes for audio, its other spellings included; case does not matter to it."""
AGENT_ONLY: Final = (
    "model_name",
    "reasoning_effort",
    "reasoning_content",
    "tool_calls",
    "metrics",
)
MODEL_ONLY: Final = ("metrics", "reasoning_content")


def find_problems(atif: Atif) -> Iterator[Diagnostic]:
    """Every rule a document breaks, its embedded subagents' too."""
    audio = atif.schema_version == AUDIO_VERSION
    # A list instead of recursion: documents can be nested deeper than Python calls.
    waiting = [(atif, "", 0)]
    while waiting:
        document, path, depth = waiting.pop()
        yield from _document_problems(document, path, audio=audio)
        embedded = document.subagent_trajectories or ()
        if embedded and depth == MOST_EMBEDDED:
            yield _problem(
                "too-deep", f"{path}subagent_trajectories", "is nested more than 254 deep"
            )
            continue
        waiting += [
            (each, f"{path}subagent_trajectories[{index}].", depth + 1)
            for index, each in reversed(list(enumerate(embedded)))
        ]


def _problem(code: str, path: str, message: str) -> Diagnostic:
    return Diagnostic(code, f"{path} {message}")


def _document_problems(atif: Atif, path: str, *, audio: bool) -> Iterator[Diagnostic]:
    versions = VERSIONS if audio else VERSIONS[:-1]
    if atif.schema_version not in versions:  # (1)
        found = render_summary(atif.schema_version)
        expected = f"{versions[0]} to {versions[-1]}"
        yield _problem(
            "version", f"{path}schema_version", f"is {found}; expected one of {expected}"
        )
    if not atif.steps:  # (2)
        yield _problem("no-steps", f"{path}steps", "is empty; expected at least one step")
    for index, step in enumerate(atif.steps):
        here = f"{path}steps[{index}]"
        if step.step_id != index + 1:  # (3)
            message = f"is {step.step_id}; expected {index + 1}, as steps are counted from 1"
            yield _problem("step-order", f"{here}.step_id", message)
        yield from list_step_problems(step, here, audio=audio)
    metrics = atif.final_metrics
    if metrics is not None and (metrics.total_steps or 0) < 0:  # (11)
        found = f"is {metrics.total_steps}; expected 0 or more"
        yield _problem("negative-count", f"{path}final_metrics.total_steps", found)
    yield from _embedded_problems(atif, path)


def _embedded_problems(atif: Atif, path: str) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for index, each in enumerate(atif.subagent_trajectories or ()):  # (10)
        here = f"{path}subagent_trajectories[{index}].trajectory_id"
        if each.trajectory_id is None:
            yield _problem("subagent-id", here, "is missing; an embedded trajectory needs one")
        elif each.trajectory_id in seen:
            found = f"is {render_summary(each.trajectory_id)}, as one before it; expected its own"
            yield _problem("subagent-id", here, found)
        else:
            seen.add(each.trajectory_id)


def list_step_problems(step: Step, path: str, *, audio: bool = False) -> Iterator[Diagnostic]:
    """Every rule that one step breaks by itself; its number is not checked."""
    if step.source not in SOURCES:  # (4)
        found = f"is {render_summary(step.source)}; expected system, user or agent"
        yield _problem("source", f"{path}.source", found)
    if step.timestamp is not None and not is_timestamp(step.timestamp):  # (5)
        found = f"is {render_summary(step.timestamp)}; expected an ISO 8601 time"
        yield _problem("timestamp", f"{path}.timestamp", found)
    yield from _field_problems(step, path)
    yield from _part_problems(step.message, f"{path}.message", audio=audio)
    if step.observation is not None:
        yield from _result_problems(step, path, audio=audio)


def is_timestamp(text: str) -> bool:
    """Whether harbor's validator takes a text for a time: what Python reads, with Z as UTC."""
    try:
        # Not needed by Python; but harbor does it, and so takes a Z in odd places.
        datetime.fromisoformat(text.replace("Z", "+00:00"))  # noqa: FURB162
    except ValueError:
        return False
    return True


def _field_problems(step: Step, path: str) -> Iterator[Diagnostic]:
    for name in AGENT_ONLY if step.source != "agent" else ():  # (6)
        if getattr(step, name) is not None:
            found = f"is in a step whose source is {render_summary(step.source)}; only agent"
            yield _problem("agent-only", f"{path}.{name}", f"{found} steps have it")
    count = step.llm_call_count
    if count is not None and count < 0:  # (11)
        found = f"is {count}; expected 0 or more"
        yield _problem("negative-count", f"{path}.llm_call_count", found)
    for name in MODEL_ONLY if count == 0 and step.source == "agent" else ():  # (7)
        if getattr(step, name) is not None:
            message = "is in a step whose llm_call_count is 0; expected none without a model call"
            yield _problem("no-model-call", f"{path}.{name}", message)


def _result_problems(step: Step, path: str, *, audio: bool) -> Iterator[Diagnostic]:
    calls = {call.tool_call_id for call in step.tool_calls or ()}
    results = step.observation.results if step.observation is not None else ()
    for index, result in enumerate(results):
        here = f"{path}.observation.results[{index}]"
        source = result.source_call_id
        if source is not None and source not in calls:  # (9)
            found = f"is {render_summary(source)}; expected the tool_call_id of a call in this step"
            yield _problem("call-id", f"{here}.source_call_id", found)
        if result.content is not None:
            yield from _part_problems(result.content, f"{here}.content", audio=audio)
        for number, ref in enumerate(result.subagent_trajectory_ref or ()):  # (10)
            if ref.trajectory_id is None and ref.trajectory_path is None:
                where = f"{here}.subagent_trajectory_ref[{number}]"
                message = "has neither trajectory_id nor trajectory_path; expected one of them"
                yield _problem("subagent-ref", where, message)


def _part_problems(content: Content, path: str, *, audio: bool) -> Iterator[Diagnostic]:
    for index, part in enumerate(() if isinstance(content, str) else content):  # (8)
        if found := _find_part_problem(part, audio=audio):
            yield Diagnostic("content-part", f"{path}[{index}]{found}")


def _find_part_problem(part: ContentPart, *, audio: bool) -> str | None:
    kinds = ("text", "image", "audio") if audio else ("text", "image")
    if part.type not in kinds:
        return f".type is {render_summary(part.type)}; expected one of {', '.join(kinds)}"
    if part.type == "text":
        if part.text is None:
            return ".text is missing; a text part needs it"
        return None if part.source is None else ".source is in a text part; expected none"
    if part.text is not None:
        return f".text is in an {part.type} part; expected none"
    if part.source is None:
        return f".source is missing; an {part.type} part needs it"
    return _find_media_problem(part.source, part.type)


def _find_media_problem(source: MediaSource, kind: str) -> str | None:
    found = render_summary(source.media_type)
    if kind == "image":
        if source.media_type not in IMAGE_TYPES:
            return f".source.media_type is {found}; expected one of {', '.join(IMAGE_TYPES)}"
        return None if source.duration_sec is UNSET else ".source.duration_sec is not an image's"
    if source.media_type.strip().lower() not in AUDIO_TYPES:
        return f".source.media_type is {found}; expected an audio type such as audio/wav"
    length = source.duration_sec
    # NaN is not >= 0, so it fails too.
    if isinstance(length, float) and not length >= 0:
        return f".source.duration_sec is {length}; expected 0 or more"
    return None


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
        # A document of the version we write may embed earlier versions, but not this one.
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


def render_atif(atif: Atif) -> bytes:
    """The bytes of a document that harbor's validator takes, absent fields left out.

    Raises:
        TraceError: it is of another version than v1.7, breaks a rule, or cannot be written as JSON.
    """
    if atif.schema_version != WRITTEN_VERSION:
        found = f"the document is {atif.schema_version}; expected {WRITTEN_VERSION}"
        raise TraceError(f"{found}: convert it with to_written_version first")
    if problem := next(find_problems(atif), None):
        raise TraceError(f"the document cannot be written: {problem.message}")
    try:
        data = msgspec.json.encode(atif)
        return msgspec.json.format(data, indent=2) + b"\n"
    except (UnicodeEncodeError, RecursionError) as error:
        raise TraceError(
            f"the document cannot be written as JSON: {type(error).__name__}; expected text of "
            "whole characters, not nested too deeply"
        ) from error
