"""Check trajectories, conversations and ATIF files to the last line, in constant memory."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proctor.audit.checks.checked import Checked, Tally
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.sentence import count_of
from proctor.traces.atif.read import load_atif
from proctor.traces.conversation import read_turns
from proctor.traces.entry import OUTPUT_FORMAT
from proctor.traces.media import collect_media, places_beside
from proctor.traces.trajectory import Chunk, read_chunks
from proctor.traces.turn import Turn

# Characters of a role that are counted; a line may have any text as its role.
_LONGEST_ROLE = 40


def check_trajectory_file(path: str) -> Checked:
    """Check every line of a trajectory.jsonl."""
    tally, roles, header = Tally(), Counter[str](), "no header"
    last_step, thing = 0, FileKind.TRAJECTORY
    for chunk in read_chunks(path, salvage=True, thorough=True):
        tally.add(chunk.diagnostics)
        tally.add(_find_dangling(chunk, path))
        roles.update(entry.role[:_LONGEST_ROLE] for entry in chunk.entries)
        last_step = max([last_step, *(entry.step for entry in chunk.entries)])
        if chunk.headers and header == "no header":
            if chunk.headers[0].format == OUTPUT_FORMAT:
                thing = FileKind.OUTPUT
            header = f"header version {msgspec.json.encode(chunk.headers[0].version).decode()}"
    entries = roles.total()
    what = count_of(entries, "entry", "entries")
    steps = f", last step {last_step}: {_render_roles(roles)}" if entries else ""
    return Checked(
        path=path,
        thing=thing,
        summary=f"{header}, {what}{steps}",
        diagnostics=tally.kept,
        more=tally.more,
    )


def _find_dangling(chunk: Chunk, path: str) -> list[Diagnostic]:
    """Missing media, as notes: files of a container are often gone."""
    named = [pair for pair in zip(chunk.lines, chunk.entries, strict=True) if pair[1].media]
    missing = collect_media(named, *_find_media(path)).missing if named else []
    return [msgspec.structs.replace(found, is_problem=False) for found in missing]


def _find_media(path: str) -> tuple[str, Sequence[str]]:
    """Directories with the media of a trace: the trial's artifacts, and next to the trace."""
    folder = Path(path).resolve().parent
    artifacts = folder.parent / "artifacts"
    root = artifacts if folder.name == "agent" and artifacts.is_dir() else folder
    return str(root), places_beside(str(folder))


def _render_roles(roles: Counter[str]) -> str:
    return ", ".join(f"{n} {role or 'without a role'}" for role, n in roles.most_common(8))


def check_conversation_file(path: str) -> Checked:
    """Check a conversation.jsonl in any dialect."""
    tally, roles = Tally(), Counter[str]()
    calls = 0
    for found in read_turns(path, salvage=True):
        if isinstance(found, Turn):
            roles[found.role[:_LONGEST_ROLE]] += 1
            calls += len(found.calls)
        else:
            tally.add([found])
    turns = roles.total()
    counts = _render_roles(roles)
    what = count_of(turns, "turn")
    return Checked(
        path=path,
        thing=FileKind.CONVERSATION,
        summary=f"{what}, {count_of(calls, 'tool call')}" + (f": {counts}" if turns else ""),
        diagnostics=tally.kept,
        more=tally.more,
    )


def check_atif_file(path: str) -> Checked:
    """Check a trajectory.json by the rules of harbor's validator."""
    found = load_atif(Path(path), salvage=True)
    tally = Tally()
    tally.add(found.diagnostics)
    agent, steps = found.atif.agent, count_of(len(found.atif.steps), "step")
    return Checked(
        path=path,
        thing=FileKind.ATIF,
        summary=f"{found.atif.schema_version}, {steps} by {agent.name} {agent.version}",
        diagnostics=tally.kept,
        more=tally.more,
    )
