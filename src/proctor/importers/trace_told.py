"""What a lone trace tells of the run it is of: times, models, first words, tokens, media.

Trajectories and conversations are read in pieces, so that one of any length can be; an ATIF file
is one document and is read whole. Reading is the salvaging kind. Nothing is made up.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from proctor.errors import TraceError
from proctor.harbor.account import AgentResultAccount
from proctor.importers.trial_inputs import LONGEST_SAID
from proctor.trajectory.atif.convert import to_entries
from proctor.trajectory.atif.in_metadata import ATIF_KEY
from proctor.trajectory.atif.model import UNKNOWN_AGENT, Atif
from proctor.trajectory.atif.read import load_atif
from proctor.trajectory.conversation import read_turns
from proctor.trajectory.entry import Entry
from proctor.trajectory.read import read_chunks
from proctor.trajectory.trace import TraceKind
from proctor.trajectory.turn import Turn


@dataclass(slots=True)
class Told:
    """What a trace tells."""

    said: dict[str, str] = field(default_factory=dict)
    """The first words of each role."""
    models: dict[str, None] = field(default_factory=dict)
    """Models that answered, in their order."""
    began: datetime | None = None
    ended: datetime | None = None
    agent: str | None = None
    agent_version: str | None = None
    reported: AgentResultAccount | None = None
    """Tokens and money, as the trace adds them up."""
    showing: list[tuple[int, Entry]] = field(default_factory=list)
    """Entries with media, and their lines."""
    is_empty: bool = True

    def take_entry(self, line: int, entry: Entry) -> None:
        """One entry of a trajectory."""
        self.is_empty = False
        self._hear(entry.role, entry.content)
        self._date(entry.timestamp)
        if entry.media:
            self.showing.append((line, entry))
        carried = entry.metadata.get(ATIF_KEY) if entry.metadata else None
        self._name_model(carried.get("model_name") if isinstance(carried, dict) else None)

    def take_turn(self, turn: Turn) -> None:
        """One turn of a conversation."""
        self.is_empty = False
        self._hear(turn.role, turn.text)
        self._date(turn.timestamp)
        self._name_model(turn.rest.get("model"))

    def take_atif(self, atif: Atif) -> None:
        """A whole document."""
        entries, _ = to_entries(atif)
        for place, entry in enumerate(entries, 1):
            self.take_entry(place, entry)
        for step in atif.steps:
            self._name_model(step.model_name)
            self._date(step.timestamp)
        self._name_model(None if self.models else atif.agent.model_name)
        if atif.agent != UNKNOWN_AGENT:
            self.agent, self.agent_version = atif.agent.name, atif.agent.version
        sums = atif.final_metrics
        if sums is not None:
            self.reported = AgentResultAccount(
                n_input_tokens=sums.total_prompt_tokens,
                n_cache_tokens=sums.total_cached_tokens,
                n_output_tokens=sums.total_completion_tokens,
                cost_usd=sums.total_cost_usd,
            )

    def date_header(self, timestamp: object) -> None:
        """When a trajectory's writer was opened."""
        self._date(timestamp if isinstance(timestamp, str) else None)

    def _hear(self, role: str, text: str | None) -> None:
        if text and role not in self.said and text.strip() and len(text) <= LONGEST_SAID:
            self.said[role] = text

    def _name_model(self, name: object) -> None:
        if isinstance(name, str) and name.strip():
            self.models[name] = None

    def _date(self, written: str | None) -> None:
        moment = _parse_time(written) if written else None
        if moment is not None:
            self.began = min(self.began or moment, moment)
            self.ended = max(self.ended or moment, moment)


def _parse_time(written: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(written)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def load_told(path: Path, kind: TraceKind) -> Told:
    """What one file tells.

    Raises:
        TraceError: it cannot be read, or nothing in it can be used.
    """
    told = Told()
    match kind:
        case TraceKind.TRAJECTORY:
            _take_trajectory(told, str(path))
        case TraceKind.CONVERSATION:
            _take_conversation(told, str(path))
        case TraceKind.ATIF:
            told.take_atif(load_atif(path, salvage=True).atif)
    if told.is_empty:
        raise TraceError(f"{path}: a {kind} with nothing usable in it")
    return told


def _take_trajectory(told: Told, path: str) -> None:
    for chunk in read_chunks(path, salvage=True):
        for header in chunk.headers:
            told.date_header(header.timestamp)
        for line, entry in zip(chunk.lines, chunk.entries, strict=True):
            told.take_entry(line, entry)


def _take_conversation(told: Told, path: str) -> None:
    for item in read_turns(path, salvage=True):
        if isinstance(item, Turn):
            told.take_turn(item)
