"""The entries of a trace, whatever kind of file it is; some at a time, where the file allows it."""

from collections.abc import Iterator, Sequence

from proctor.traced.trial import FoundTrace
from proctor.trajectory.conversation import read_turns
from proctor.trajectory.entry import Entry
from proctor.trajectory.read import read_chunks
from proctor.trajectory.spoken import turns_to_entries
from proctor.trajectory.trace import TraceKind, load_trace_file
from proctor.trajectory.turn import Turn

_AT_ONCE = 1024


def read_entries(trace: FoundTrace) -> Iterator[Sequence[Entry]]:
    """What can be read of an open trace, in its order; bad lines are passed over.

    Raises:
        TraceError: it cannot be read at all.
    """
    match trace.kind:
        case TraceKind.TRAJECTORY:
            for chunk in read_chunks(trace.path, salvage=True):
                yield chunk.entries
        case TraceKind.ATIF:
            yield load_trace_file(trace.path, trace.kind).entries
        case TraceKind.CONVERSATION:
            items = read_turns(trace.path, salvage=True)
            yield from _some(turns_to_entries(item for item in items if isinstance(item, Turn)))


def _some(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    gathered: list[Entry] = []
    for entry in entries:
        gathered.append(entry)
        if len(gathered) == _AT_ONCE:
            yield gathered
            gathered = []
    yield gathered
