"""Any valid ATIF document, and any entries, for Hypothesis."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from proctor.traces.atif.model import (
    Agent,
    Atif,
    ContentPart,
    FinalMetrics,
    MediaSource,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    SubagentRef,
    ToolCall,
)
from proctor.traces.entry import Entry

texts = st.text(max_size=8)
scalars = st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(-9, 9) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(texts | st.sampled_from(("command", "atif")), values, max_size=2)
rests = st.fixed_dictionaries(
    {},
    optional={
        "exit_code": st.just(3),
        "step": st.integers(-1, 3),
        "content": st.sampled_from((None, "a lie")),
        "stdout": st.just("a lie"),
        "role": st.sampled_from(("user", "tool_call")),
        "metadata": st.sampled_from((None, {}, {"atif": {"document": {"notes": "a lie"}}})),
        "absent": st.sampled_from((True, True, False)),
        "order": st.sampled_from(("rc", "cr", "ccrr", "rr", "xc", 5)),
    },
)
extras: st.SearchStrategy[Any] = (
    st.none() | objects | st.builds(dict, trajectory_entry=rests | scalars)
)
"""Some of them hold what only our own writer writes, true or not."""
counts = st.none() | st.integers(0, 9)
costs = st.none() | st.floats(0, 1)
times = st.sampled_from((None, "2026-03-01T10:00:00Z", "2026-03-01"))


def _maybe[T](strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy


images = st.builds(
    ContentPart,
    type=st.just("image"),
    source=st.builds(MediaSource, media_type=st.just("image/png"), path=texts.map("s://".__add__)),
)
words = st.builds(ContentPart, type=st.just("text"), text=texts)
sounds = st.builds(
    ContentPart,
    type=st.just("audio"),
    source=st.builds(
        MediaSource, media_type=st.just("audio/wav"), path=texts, duration_sec=st.floats(0, 9)
    ),
)
metrics = st.builds(
    Metrics,
    prompt_tokens=counts,
    cost_usd=costs,
    logprobs=_maybe(st.tuples(st.floats(-9, 0))),
    extra=extras,
)
refs = st.builds(SubagentRef, trajectory_path=texts, session_id=_maybe(texts), extra=extras)


def _contents(*, audio: bool) -> st.SearchStrategy[Any]:
    parts = st.one_of(words, images, sounds) if audio else words | images
    return texts | st.lists(parts, max_size=3).map(tuple)


@st.composite
def steps(draw: st.DrawFn, number: int, *, audio: bool) -> Step:
    """A valid step. Ids are few, so that calls share them and results pair in odd ways."""
    ids = st.sampled_from(("a", "b", "", f"call_{number}_1"))
    is_agent = draw(st.booleans())
    call = st.builds(
        ToolCall, tool_call_id=ids, function_name=texts, arguments=objects, extra=extras
    )
    calls = draw(_maybe(st.lists(call, max_size=3).map(tuple))) if is_agent else None
    named = [each.tool_call_id for each in calls or ()]
    result = st.builds(
        ObservationResult,
        source_call_id=st.sampled_from([None, *named]),
        content=_maybe(_contents(audio=audio)),
        subagent_trajectory_ref=_maybe(st.tuples(refs)),
        extra=extras,
    )
    results = st.lists(result, max_size=4).map(tuple)
    llm_calls = draw(counts)
    model = is_agent and llm_calls != 0
    return Step(
        step_id=number,
        timestamp=draw(times),
        source="agent" if is_agent else draw(st.sampled_from(("system", "user"))),
        model_name=draw(_maybe(texts)) if is_agent else None,
        reasoning_effort=draw(_maybe(texts | st.floats(0, 1))) if is_agent else None,
        message=draw(_contents(audio=audio)),
        reasoning_content=draw(_maybe(texts)) if model else None,
        tool_calls=calls,
        observation=draw(_maybe(st.builds(Observation, results=results))),
        metrics=draw(_maybe(metrics)) if model else None,
        is_copied_context=draw(_maybe(st.booleans())),
        llm_call_count=llm_calls,
        extra=draw(extras),
    )


@st.composite
def documents(draw: st.DrawFn, version: str = "ATIF-v1.7", *, embedded: bool = False) -> Atif:
    """A valid document of a version; audio in it when that is v1.8."""
    audio = version == "ATIF-v1.8"
    count = draw(st.integers(1, 3))
    subagents: tuple[Atif, ...] | None = None
    if not embedded and draw(st.booleans()):
        subagents = (draw(documents(version, embedded=True)),)
    agent = st.builds(Agent, name=texts, version=texts, model_name=_maybe(texts), extra=extras)
    return Atif(
        schema_version=version,
        session_id=draw(_maybe(texts)),
        trajectory_id=draw(texts),
        agent=draw(agent),
        steps=tuple(draw(steps(number, audio=audio)) for number in range(1, count + 1)),
        notes=draw(_maybe(texts)),
        final_metrics=draw(
            _maybe(st.builds(FinalMetrics, total_cost_usd=costs, total_steps=counts, extra=extras))
        ),
        continued_trajectory_ref=draw(_maybe(texts)),
        extra=draw(extras),
        subagent_trajectories=subagents,
    )


roles = st.sampled_from(("system", "user", "assistant", "tool_call", "tool_result", "tool", ""))
carries = st.sampled_from(
    (
        {"atif": {}},
        {"atif": 5},
        {"atif": {"document": {}}},
        {"atif": {"document": {"notes": "n"}, "extra": {"trajectory_entry": {"content": "lie"}}}},
        {"atif": {"document": {"final_metrics": {"total_steps": -1}}}},
        {"atif": {"metrics": {"prompt_tokens": 5}}, "own": 1},
        {"atif": {"message": [{"type": "text", "text": "another"}]}},
        {"atif": {"result_order": [1, 0]}},
        {"atif": {"tool_call_id": "a"}},
        {"atif": {"source_call_id": "nowhere"}},
        {"atif": {"extra": {"trajectory_entry": {"exit_code": 3}}}},
        {"atif": {"content": [{"type": "audio", "source": {"media_type": "x", "path": "p"}}]}},
    )
)
names = _maybe(st.sampled_from(("bash", "calc")))
entries = st.builds(
    Entry,
    role=roles,
    step=st.integers(0, 3),
    content=_maybe(texts),
    tool_name=names,
    command=_maybe(texts),
    arguments=extras,
    stdout=_maybe(texts),
    stderr=_maybe(texts),
    exit_code=_maybe(st.integers(-1, 1)),
    duration_ms=counts,
    media=_maybe(st.lists(texts, max_size=2)),
    metadata=extras | carries,
    output_summary=_maybe(texts),
    call_type=_maybe(texts),
    meta_harness=extras,
    timestamp=times | texts,
)


def entry_lists() -> st.SearchStrategy[list[Entry]]:
    """Entries of no harness in particular, with honest and lying metadata."""
    return st.lists(entries, min_size=1, max_size=6)


def builtins(value: object) -> Any:
    """A value as plain JSON."""
    return msgspec.to_builtins(value)
