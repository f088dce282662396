"""More ways to damage a ledger: its checkpoint, its evidence, what was taken out, its history."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from backports import zstd

from proctor.ledger.entry import Withheld, encode_entry
from proctor.ledger.note import sign_checkpoint
from proctor.ledger.tree import Tree, leaf_hash, root_of
from proctor.ledger.verification.damage import DamageKind
from tests.ledger.ledgers import ORIGIN
from tests.ledger.mutations import Expected, Mutation, Subject, line_of, pick, splice

UNSIGNED = {
    DamageKind.BAD_SIGNATURE,
    DamageKind.MISSING_SIGNATURE,
    DamageKind.UNREADABLE_CHECKPOINT,
}
ALTERED = {DamageKind.ALTERED_ARTIFACT}


# The checkpoint


def _flip_line(subject: Subject, number: int) -> None:
    data = subject.checkpoint.read_bytes()
    begin = sum(len(line) for line in data.splitlines(keepends=True)[:number])
    end = data.index(b"\n", begin) + 1
    at = subject.random.randrange(begin, end)
    splice(subject, subject.checkpoint, at, at + 1, subject.other_byte(data[at]))


def flip_the_origin(subject: Subject) -> Expected:
    _flip_line(subject, 0)
    return Expected(UNSIGNED | {DamageKind.WRONG_ORIGIN})


def flip_the_size(subject: Subject) -> Expected:
    _flip_line(subject, 1)
    return Expected(UNSIGNED)


def flip_the_root(subject: Subject) -> Expected:
    _flip_line(subject, 2)
    return Expected(UNSIGNED)


def flip_the_signature(subject: Subject) -> Expected:
    _flip_line(subject, 4)
    return Expected(UNSIGNED)


def flip_the_empty_line(subject: Subject) -> Expected:
    _flip_line(subject, 3)
    return Expected(UNSIGNED)


def cut_the_checkpoint(subject: Subject) -> Expected:
    data = subject.checkpoint.read_bytes()
    subject.write(subject.checkpoint, data[: subject.random.randrange(len(data))])
    return Expected(UNSIGNED)


def swap_lines_of_the_checkpoint(subject: Subject) -> Expected:
    lines = subject.checkpoint.read_bytes().splitlines(keepends=True)
    one, other = subject.random.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    subject.write(subject.checkpoint, b"".join(lines))
    return Expected(UNSIGNED)


def double_a_line_of_the_checkpoint(subject: Subject) -> Expected:
    lines = subject.checkpoint.read_bytes().splitlines(keepends=True)
    at = subject.random.randrange(len(lines))
    lines.insert(at, lines[at])
    subject.write(subject.checkpoint, b"".join(lines))
    return Expected(UNSIGNED, is_note=at == len(lines) - 2)


def insert_into_the_checkpoint(subject: Subject) -> Expected:
    data = subject.checkpoint.read_bytes()
    at = subject.random.randrange(len(data) + 1)
    more = subject.random.choice([b"x", b"\n", b" ", b"\x00", b"\xff", b"A" * 1_000_000])
    splice(subject, subject.checkpoint, at, at, more)
    return Expected(UNSIGNED | {DamageKind.WRONG_ORIGIN})


def take_the_signature_off(subject: Subject) -> Expected:
    body = subject.checkpoint.read_bytes().partition(b"\n\n")[0]
    subject.write(subject.checkpoint, body + b"\n\n")
    return Expected({DamageKind.MISSING_SIGNATURE})


def remove_the_checkpoint(subject: Subject) -> Expected:
    subject.remove(subject.checkpoint)
    return Expected({DamageKind.UNREADABLE_CHECKPOINT})


def put_an_older_checkpoint_back(subject: Subject) -> Expected:
    subject.write(subject.checkpoint, subject.ledger.older.read_bytes())
    consequences = {DamageKind.WRONG_KEY, DamageKind.WITHHELD}
    return Expected({DamageKind.ROLLED_BACK} | consequences, must=DamageKind.ROLLED_BACK)


def sign_with_the_former_key(subject: Subject) -> Expected:
    tree = _tree_of(subject)
    key = subject.ledger.first_key
    signed = sign_checkpoint(ORIGIN, tree, key.verifier, key.sign)
    subject.write(subject.checkpoint, signed.render())
    return Expected({DamageKind.MISSING_SIGNATURE})


def sign_for_another_origin(subject: Subject) -> Expected:
    key = subject.ledger.key
    signed = sign_checkpoint("example.org/other", _tree_of(subject), key.verifier, key.sign)
    subject.write(subject.checkpoint, signed.render())
    return Expected({DamageKind.WRONG_ORIGIN})


# What its owner can do, and a holder of an older checkpoint sees


def _leaves(lines: Sequence[bytes]) -> list[bytes]:
    withheld = [re.match(rb'{"withheld":"([0-9a-f]{64})"', line) for line in lines]
    return [
        bytes.fromhex(found.group(1).decode()) if found else leaf_hash(line.rstrip(b"\n"))
        for line, found in zip(lines, withheld, strict=True)
    ]


def _tree_of(subject: Subject) -> Tree:
    lines = [line_of(place) for place in subject.lines()]
    return Tree(len(lines), root_of(_leaves(lines)))


def _sign_again(subject: Subject) -> None:
    key = subject.ledger.key
    signed = sign_checkpoint(ORIGIN, _tree_of(subject), key.verifier, key.sign)
    subject.write(subject.checkpoint, signed.render())
    subject.remove(subject.ledger.directory / "index.sqlite")


def rewrite_history(subject: Subject) -> Expected:
    lines = subject.lines()[1 : subject.older_size - 1]
    path, begin, end = subject.random.choice(lines)
    line = path.read_bytes()[begin:end]
    at = line.find(b'"reward":')
    if at >= 0:
        splice(subject, path, begin + at + 9, begin + at + 10, b"9")
    else:
        splice(subject, path, begin + 7, begin + 8, b"1")
    _sign_again(subject)
    # The handover behind it names the root that the log had.
    kinds = {DamageKind.FORKED, DamageKind.BAD_KEY_CHANGE}
    return Expected(kinds, must=DamageKind.FORKED)


def cut_history(subject: Subject) -> Expected:
    keep = subject.random.randrange(1, subject.older_size - 1)
    for number, (path, begin, _) in reversed(list(enumerate(subject.lines()))):
        if number == keep:
            subject.write(path, path.read_bytes()[:begin])
        elif number > keep and begin == 0:
            subject.remove(path)
    key = subject.ledger.first_key
    signed = sign_checkpoint(ORIGIN, _tree_of(subject), key.verifier, key.sign)
    subject.write(subject.checkpoint, signed.render())
    subject.remove(subject.ledger.directory / "index.sqlite")
    # The key that was given came later, and so did the entries about what was taken out.
    consequences = {DamageKind.WRONG_KEY, DamageKind.WITHHELD}
    return Expected({DamageKind.TRUNCATED} | consequences, must=DamageKind.TRUNCATED)


# What was taken out


def take_a_line_out_silently(subject: Subject) -> Expected:
    seq, path, begin, end = pick(subject)
    line = path.read_bytes()[begin:end]
    left = encode_entry(Withheld(withheld=leaf_hash(line).hex(), seq=seq))
    if len(left) > len(line):
        return take_a_line_out_silently(subject)
    splice(subject, path, begin, end, left.ljust(len(line)))
    # Where that was the entry of a key, the rest is no longer signed by one that is known.
    kinds = {DamageKind.WITHHELD}
    if b'"kind":"key"' in line:
        kinds |= {DamageKind.WRONG_KEY, DamageKind.MISSING_SIGNATURE}
    return Expected(kinds, seqs={seq})


def flip_a_withheld_line(subject: Subject) -> Expected:
    seq = subject.random.choice(subject.ledger.withheld)
    path, begin, end = subject.lines()[seq]
    at = subject.random.randrange(begin, end)
    splice(subject, path, at, at + 1, subject.other_byte(path.read_bytes()[at]))
    return Expected({DamageKind.EDITED}, seqs={seq})


# Evidence


def _plain(data: bytes) -> bytes | None:
    try:
        return zstd.decompress(data)
    except zstd.ZstdError:
        return None


def _alter(subject: Subject, path: Path, data: bytes) -> Expected:
    is_same = _plain(data) == _plain(path.read_bytes())
    subject.write(path, data)
    return Expected(set() if is_same else ALTERED)


def flip_an_artifact(subject: Subject) -> Expected:
    path = subject.random.choice(subject.artifacts)
    data = path.read_bytes()
    at = subject.random.randrange(len(data))
    return _alter(subject, path, data[:at] + subject.other_byte(data[at]) + data[at + 1 :])


def cut_an_artifact(subject: Subject) -> Expected:
    path = subject.random.choice(subject.artifacts)
    data = path.read_bytes()
    return _alter(subject, path, data[: subject.random.randrange(len(data))])


def add_to_an_artifact(subject: Subject) -> Expected:
    path = subject.random.choice(subject.artifacts)
    more = subject.random.choice([b"x", zstd.compress(b"more")])
    return _alter(subject, path, path.read_bytes() + more)


def swap_artifacts(subject: Subject) -> Expected:
    one, other = subject.random.sample(subject.artifacts, 2)
    first, second = one.read_bytes(), other.read_bytes()
    subject.write(one, second)
    subject.write(other, first)
    return Expected(ALTERED)


def remove_an_artifact(subject: Subject) -> Expected:
    subject.remove(subject.random.choice(subject.artifacts))
    return Expected({DamageKind.MISSING_ARTIFACT})


def put_a_link_for_an_artifact(subject: Subject) -> Expected:
    path = subject.random.choice(subject.artifacts)
    copy = subject.ledger.directory.parent / "copy.zst"
    copy.write_bytes(path.read_bytes())
    subject.remove(path)
    path.symlink_to(copy)
    return Expected(ALTERED)


def put_a_pipe_for_an_artifact(subject: Subject) -> Expected:
    path = subject.random.choice(subject.artifacts)
    subject.remove(path)
    os.mkfifo(path)
    return Expected(ALTERED)


SIGNED_MUTATIONS: tuple[Mutation, ...] = (
    flip_the_origin, flip_the_size, flip_the_root, flip_the_signature, flip_the_empty_line,
    cut_the_checkpoint, swap_lines_of_the_checkpoint, double_a_line_of_the_checkpoint,
    insert_into_the_checkpoint, take_the_signature_off, remove_the_checkpoint,
    put_an_older_checkpoint_back, sign_with_the_former_key, sign_for_another_origin,
    rewrite_history, cut_history, take_a_line_out_silently, flip_a_withheld_line,
    flip_an_artifact, cut_an_artifact, add_to_an_artifact, swap_artifacts, remove_an_artifact,
    put_a_link_for_an_artifact, put_a_pipe_for_an_artifact,
)  # fmt: skip
