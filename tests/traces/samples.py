"""Entries to sum up: those of a plain turn, and arbitrary ones."""

from typing import Any

from hypothesis import strategies as st

from proctor.traces.entry import Entry


def said(step: int, text: str = "x", **more: Any) -> Entry:
    return Entry(role="assistant", step=step, content=text, **more)


def called(step: int, command: str = "ls", tool: str = "bash", **more: Any) -> Entry:
    return Entry(role="tool_call", step=step, tool_name=tool, command=command, **more)


def gave(step: int, code: int | None = 0, stdout: str = "", **more: Any) -> Entry:
    more.setdefault("tool_name", "bash")
    return Entry(role="tool_result", step=step, exit_code=code, stdout=stdout, **more)


def ran(step: int, command: str, code: int | None = 0, stdout: str = "") -> list[Entry]:
    """A call and its result."""
    return [called(step, command), gave(step, code, stdout)]


texts = st.text(max_size=30) | st.sampled_from(
    ["Error: x", "[exit code: 3]", "cat > a <<E\nE", "2026-01-01T00:00:00Z", "NaN", "99999-01-01"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
metadata_keys = st.sampled_from(
    [
        *("atif", "conversation", "tokens", "usage", "advisor", "advisor_tokens", "metrics"),
        *("is_error", "document", "subagent_trajectories", "input_tokens", "call_input", "id"),
    ]
)
objects = st.dictionaries(
    metadata_keys | texts, values | st.dictionaries(metadata_keys, values, max_size=3), max_size=3
)
roles = st.sampled_from(["assistant", "tool_call", "tool_result", "user", "system", "odd", ""])
entries = st.builds(
    Entry,
    role=roles,
    step=st.integers(min_value=0, max_value=5) | st.integers(min_value=0, max_value=2**63),
    content=st.none() | texts,
    tool_name=st.none() | st.sampled_from(["bash", "Bash", "write_file", "apply_patch", "x"]),
    command=st.none() | texts,
    arguments=st.none() | objects,
    stdout=st.none() | texts,
    stderr=st.none() | texts,
    exit_code=st.none() | st.integers(min_value=-3, max_value=3),
    duration_ms=st.none() | st.integers(),
    metadata=st.none() | objects,
    call_type=st.none() | st.sampled_from(["warmup", "subagent", "main"]),
    timestamp=st.none() | texts | st.datetimes().map(lambda time: time.isoformat()),
)
