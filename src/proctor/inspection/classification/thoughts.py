"""What an agent thought, where its dialect keeps that apart from what it said."""

from collections.abc import Iterator

from proctor.trajectory.entry import Object

_PLACES = (("conversation", "thinking"), ("atif", "reasoning_content"))


def find_thoughts(metadata: Object) -> Iterator[str]:
    """The thoughts in an entry's metadata."""
    for key, name in _PLACES:
        held = metadata.get(key)
        thought = held.get(name) if isinstance(held, dict) else None
        if isinstance(thought, str):
            yield thought
