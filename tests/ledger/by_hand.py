"""An owner who appends by hand with the key: nothing asks what the entries are."""

import base64
from pathlib import Path

import msgspec

from proctor.ledger.entry import (
    FORMAT,
    AnyEntry,
    EvidenceFile,
    KeyEntry,
    Subject,
    TrialEntry,
    Withheld,
    WithholdEntry,
    decode_line,
    encode_entry,
    now_text,
)
from proctor.ledger.keys import SigningKey
from proctor.ledger.log import FileLog, read_lines, segment_name
from proctor.ledger.note import (
    Signer,
    VerifierKey,
    handover_message,
    parse_checkpoint,
    sign_checkpoint,
)
from proctor.ledger.tree import Tree, leaf_hash, root_of
from tests.ledger.ledgers import record_bytes


def append_by_hand(directory: Path, key: Signer, *entries: AnyEntry | bytes) -> list[int]:
    """Put entries, or lines as they are, at the end of a log and sign it; their places."""
    lines = [line.data for line in read_lines(FileLog(directory))]
    places = list(range(len(lines), len(lines) + len(entries)))
    new = [
        entry
        if isinstance(entry, bytes)
        else encode_entry(msgspec.structs.replace(entry, at=now_text(), seq=seq))
        for seq, entry in zip(places, entries, strict=True)
    ]
    last = directory / segment_name(len(list((directory / "entries").iterdir())) - 1)
    with last.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in new))
    sign_by_hand(directory, key)
    return places


def sign_by_hand(directory: Path, key: Signer) -> None:
    """Sign the log as it is."""
    lines = [line.data for line in read_lines(FileLog(directory))]
    origin = parse_checkpoint((directory / "checkpoint").read_bytes(), "").origin
    tree = Tree(len(lines), root_of(map(_leaf_of, lines)))
    signed = sign_checkpoint(origin, tree, key.verifier, key.sign)
    (directory / "checkpoint").write_bytes(signed.render())


def hand_over(
    directory: Path, former: SigningKey, heir: VerifierKey | SigningKey, **changes: object
) -> KeyEntry:
    """The entry by which a key names its heir at the end of a log, unless it is changed."""
    lines = [line.data for line in read_lines(FileLog(directory))]
    origin = parse_checkpoint((directory / "checkpoint").read_bytes(), "").origin
    key, root = str(getattr(heir, "verifier", heir)), root_of(map(_leaf_of, lines)).hex()
    named = {"seq": len(lines), "root": root, "key": key, **changes}
    message = handover_message(origin, str(named["key"]), len(lines), str(named["root"]))
    signature = base64.b64encode(former.sign(message)).decode()
    stated = {"at": "", "kind": "key", "format": FORMAT, "origin": origin, "signature": signature}
    return msgspec.convert({**stated, **named}, KeyEntry)


def _leaf_of(line: bytes) -> bytes:
    entry = decode_line(line, "a line")
    return bytes.fromhex(entry.withheld) if isinstance(entry, Withheld) else leaf_hash(line)


def overwrite_by_hand(directory: Path, seq: int) -> str:
    """Take a line out; its leaf hash is returned."""
    path = directory / segment_name(0)
    lines = path.read_bytes().splitlines()
    leaf = leaf_hash(lines[seq]).hex()
    lines[seq] = encode_entry(Withheld(withheld=leaf, seq=seq)).ljust(len(lines[seq]))
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return leaf


def trial(name: str, /, *evidence: str, **changes: object) -> TrialEntry:
    """A trial as nobody sealed it; `evidence` are paths, of files that are not there."""
    record = msgspec.json.format(record_bytes(name, **changes), indent=-1)
    files = tuple(EvidenceFile(path=path, sha256="0" * 64, size=0) for path in evidence)
    return TrialEntry(at="", seq=0, record=msgspec.Raw(record), evidence=files)


def withhold(subject: Subject | None, entry: int, leaf: str) -> WithholdEntry:
    """An entry that says that a line was taken out."""
    return WithholdEntry(
        at="", seq=0, subject=subject, entry=entry, leaf=leaf, artifacts=(), reason="r", author="a"
    )
