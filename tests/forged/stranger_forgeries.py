"""Forgeries of a stranger who hands over a ledger or a bundle that is signed as it is.

Nobody has seen the ledger before: the checkpoint that is kept is the stranger's too.
"""

from collections.abc import Callable

import msgspec

from proctor.ledger.entry import EvidenceFile, TrialEntry, decode_line, encode_entry
from proctor.ledger.keys import load_key
from proctor.ledger.note import sign_checkpoint
from proctor.ledger.query import find_trial
from proctor.ledger.tree import Tree, leaf_hash, root_of
from tests.forged.forger import edit_lines, opened_by_owner
from tests.forged.honest import NAME, HandedIn, keep_checkpoint
from tests.ledger.hostile import pack
from tests.ledger.test_bundle import write_members

OUTSIDE = "../../x/site-packages"


def name_trial_outside(handed: HandedIn) -> None:
    """The id of a trial leads out of every directory that it is written to."""

    def change(entry: TrialEntry) -> TrialEntry:
        record = {**msgspec.json.decode(entry.record), "trial_id": OUTSIDE}
        data = msgspec.Raw(msgspec.json.encode(record))
        return msgspec.structs.replace(entry, record=data)

    _change_trial(handed, change)


def name_evidence_outside(handed: HandedIn) -> None:
    """A file of evidence has a name that leads there."""

    def change(entry: TrialEntry) -> TrialEntry:
        first = entry.evidence[0]
        evil = EvidenceFile(path=f"{OUTSIDE}/evil.pth", sha256=first.sha256, size=first.size)
        return msgspec.structs.replace(entry, evidence=(evil, *entry.evidence[1:]))

    _change_trial(handed, change)


def name_member_outside(handed: HandedIn) -> None:
    """A bundle of the honest ledger has one more member."""
    members = pack(handed.ledger)
    write_members(handed.bundle, [*members, (f"{OUTSIDE}/evil.pth", b"evil")])


def leave_out_supersession(handed: HandedIn) -> None:
    """A pass was superseded by another trial, and a bundle has the hash of that entry alone."""
    with opened_by_owner(handed) as ledger:
        trials = (f"{NAME}/{trial.name}" for trial in handed.trials("answer"))
        old, new = (find_trial(ledger, trial) for trial in trials)
        seq = ledger.supersede(old, new, cause="infrastructure", reason="it cheated", author="me")
    keep_checkpoint(handed)
    members = dict(pack(handed.ledger))
    lines = members["entries.jsonl"].splitlines()
    lines[seq] = b'{"left_out":"%s","seq":%d}' % (leaf_hash(lines[seq]).hex().encode(), seq)
    members["entries.jsonl"] = b"".join(line + b"\n" for line in lines)
    write_members(handed.bundle, list(members.items()))


def _change_trial(handed: HandedIn, change: Callable[[TrialEntry], TrialEntry]) -> None:
    """Another last trial in the log, and a checkpoint that signs it."""
    key = load_key(handed.keys / "proctor" / "keys" / "default")
    origin = (handed.ledger / "checkpoint").read_text().splitlines()[0]

    def change_last(lines: list[bytes]) -> list[bytes]:
        entry = decode_line(lines[-1].rstrip(), "the last trial")
        assert isinstance(entry, TrialEntry)
        changed = [*lines[:-1], encode_entry(change(entry)) + b"\n"]
        tree = Tree(len(changed), root_of(leaf_hash(line[:-1]) for line in changed))
        signed = sign_checkpoint(origin, tree, key.verifier, key.sign)
        (handed.ledger / "checkpoint").write_bytes(signed.render())
        return changed

    edit_lines(handed.ledger, change_last)
    keep_checkpoint(handed)
