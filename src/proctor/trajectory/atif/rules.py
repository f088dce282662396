"""What harbor's validator demands of a document beyond the types of its fields.

A document of v1.0 to v1.7 is held to harbor 0.13.1, one of v1.8 to harbor 0.25.0. Neither of them
minds a field of a later version in a document of an earlier one; audio alone is new to v1.8 for
both. The version of the outermost document decides, as it decides which validator would take it.

(1) a known version            (6) fields that only agent steps have
(2) at least one step          (7) no model call, no metrics
(3) step ids 1, 2, 3, …        (8) parts of content
(4) a known source             (9) results name calls of their own step
(5) ISO 8601                  (10) subagents can be found
                              (11) counts are not negative

Whether an image is there on disk is not asked.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from msgspec import UNSET

from proctor.diagnostic import Diagnostic
from proctor.trajectory.atif.model import (
    AUDIO_VERSION,
    SOURCES,
    VERSIONS,
    Atif,
    Content,
    ContentPart,
    MediaSource,
    Step,
)
from proctor.trajectory.loss import render_summary

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
    # A list and not a call inside a call: how deep a stranger nests documents is up to them.
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
        yield from find_step_problems(step, here, audio=audio)
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


def find_step_problems(step: Step, path: str, *, audio: bool = False) -> Iterator[Diagnostic]:
    """Every rule that one step breaks by itself; its number is not looked at."""
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
            found = f"stands in a step whose source is {render_summary(step.source)}; only agent"
            yield _problem("agent-only", f"{path}.{name}", f"{found} steps have it")
    count = step.llm_call_count
    if count is not None and count < 0:  # (11)
        found = f"is {count}; expected 0 or more"
        yield _problem("negative-count", f"{path}.llm_call_count", found)
    for name in MODEL_ONLY if count == 0 and step.source == "agent" else ():  # (7)
        if getattr(step, name) is not None:
            message = "stands in a step whose llm_call_count is 0; no model, so none of it"
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
        return None if part.source is None else ".source stands in a text part; expected none"
    if part.text is not None:
        return f".text stands in an {part.type} part; expected none"
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
    # Written so that nan fails it.
    if isinstance(length, float) and not length >= 0:
        return f".source.duration_sec is {length}; expected 0 or more"
    return None
