"""What a stranger's ledger says is never obeyed by a terminal, whoever prints it."""

import base64
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import NoteError
from proctor.ledger.entry import (
    AnyEntry,
    NoteEntry,
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    TrialScore,
)
from proctor.ledger.note import parse_checkpoint, sign_checkpoint
from proctor.ledger.query import find_trial
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.tree import Tree, leaf_hash, root_of
from tests.cli.programs import Proctor, command_line, environment
from tests.ledger.ledgers import EXPERIMENT, ORIGIN, find_key, make_ledger, record_bytes, small

HOSTILE = "a\x1b[31mred\x1b]0;title\x07\x08\x7f\x9b2J\u202e\u2028z"


def is_harmless(text: str) -> bool:
    return all(letter == "\n" or letter.isprintable() for letter in text)


@pytest.mark.parametrize("name", ["example.org/\x1b[2J", "a\u202eb", "a\x9bb", "a\u200bb"])
def test_a_checkpoint_with_an_unprintable_name_is_none(name: str, tmp_path: Path) -> None:
    key = find_key(tmp_path)
    tree = Tree(1, root_of([leaf_hash(b"x")]))
    note = sign_checkpoint(name, tree, key.verifier, key.sign).render()
    with pytest.raises(NoteError, match="expected printable characters"):
        parse_checkpoint(note, "checkpoint")
    honest = sign_checkpoint(ORIGIN, tree, key.verifier, key.sign).render()
    line = f"— {name} {base64.b64encode(bytes(76)).decode()}\n".encode()
    assert parse_checkpoint(honest, "checkpoint").origin == ORIGIN
    with pytest.raises(NoteError, match="is not a signature line"):
        parse_checkpoint(honest + line, "checkpoint")


def name_anew(directory: Path, origin: str) -> Path:
    """A ledger that its owner gave another origin, everything signed."""
    ledger, key = small(directory, "trial-001"), find_key(directory)
    segment = ledger / "entries" / "000000.jsonl"
    spelled = origin.encode("unicode_escape").replace(rb"\x", rb"\u00")
    segment.write_bytes(segment.read_bytes().replace(ORIGIN.encode(), spelled, 1))
    leaves = [leaf_hash(line) for line in segment.read_bytes().splitlines()]
    tree = Tree(len(leaves), root_of(leaves))
    signed = sign_checkpoint(origin, tree, key.verifier, key.sign)
    (ledger / "checkpoint").write_bytes(signed.render())
    return ledger


def test_a_ledger_with_a_hostile_origin_is_refused_in_plain_words(
    proctor: Proctor, tmp_path: Path
) -> None:
    ledger = name_anew(tmp_path, "example.org/\x1b]0;owned\x07\u202e")
    for command in (
        ("ledger", "checkpoint"),
        ("ledger", "checkpoint", "--public-key"),
        ("ledger", "verify"),
        ("ledger", "list"),
        ("show", "0"),
        ("board",),
    ):
        ran = proctor(*command, "--ledger", ledger)
        assert ran.code in (1, 2), command
        assert is_harmless(ran.out + ran.err), command
    for place in (ledger, ledger / "checkpoint"):
        ran = proctor("check", place)
        assert ran.code in (1, 2)
        assert is_harmless(ran.out + ran.err)


def make_hostile(directory: Path) -> Path:
    """A ledger in which everything that may be text is hostile."""
    changes = {"task.task_id": HOSTILE, "agent.adapter": HOSTILE, "inputs.instruction": HOSTILE}
    record = record_bytes("trial-002", **changes, **{"agent.model": HOSTILE})
    finding = {"code": HOSTILE, "message": HOSTILE}
    with make_ledger(directory, ("trial-001",)) as ledger:
        seal(ledger, [Submission(record=record, where="trial-002", findings=(finding,))])
        ledger.refresh()
        one, two = (find_trial(ledger, f"trial-00{n}").subject for n in (1, 2))
        said: dict[str, Any] = {"at": "", "seq": 0, "reason": HOSTILE, "author": HOSTILE}
        remarks: list[AnyEntry] = [
            ReviewEntry(at="", seq=0, subject=one, verdict="pass", reviewer=HOSTILE, note=HOSTILE),
            RescoreEntry(subject=one, score=TrialScore(profile=HOSTILE), **said),
            SupersedeEntry(subject=one, by=two, cause="infrastructure", **said),
            NoteEntry(at="", seq=0, text=HOSTILE, author=HOSTILE),
        ]
        with ledger.writing():
            ledger.append(remarks)
        ledger.refresh()
    return directory / "ledger"


def test_no_command_sends_a_hostile_text_to_a_terminal(proctor: Proctor, tmp_path: Path) -> None:
    ledger = make_hostile(tmp_path)
    commands: list[tuple[str, ...]] = [("show", str(seq)) for seq in range(7)]
    commands += [("show", "trial-002"), ("show", "trial-002", "--json"), ("board",)]
    commands += [("ledger", "list"), ("ledger", "list", "--json"), ("ledger", "verify")]
    commands += [("ledger", "checkpoint"), ("report", EXPERIMENT)]
    commands += [("report", EXPERIMENT, "--format", "markdown"), ("report", EXPERIMENT, "--json")]
    commands += [("search", "red"), ("trace", "summary", EXPERIMENT)]
    for command in commands:
        ran = proctor(*command, "--ledger", ledger)
        assert is_harmless(ran.out + ran.err), (command, ran)
        assert "Usage" not in ran.err, (command, ran)


def test_a_terminal_gets_bytes_spelled_out_and_a_pipe_as_they_are(tmp_path: Path) -> None:
    ledger = make_hostile(tmp_path)
    line = command_line("show", "trial-002", "--raw", "--ledger", ledger)
    plain = subprocess.run(line, env=environment(), capture_output=True, check=True).stdout
    assert "\u202e".encode() in plain
    ours, theirs = pty.openpty()
    with subprocess.Popen(line, stdout=theirs, stderr=theirs, env=environment()) as running:
        os.close(theirs)
        sent = b""
        while piece := read_terminal(ours):
            sent += piece
        os.close(ours)
        assert running.wait(timeout=60) == 0
    assert is_harmless(sent.decode().replace("\r\n", "\n"))
    assert rb"\u202e" in sent


def read_terminal(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # how a terminal ends whose other side is gone
        return b""
