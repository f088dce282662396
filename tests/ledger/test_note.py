"""Signed notes and checkpoints, against a real one of a public log."""

from pathlib import Path

import pytest

from proctor.errors import KeyFileError, NoteError, SignatureError
from proctor.ledger.keys import make_key
from proctor.ledger.note import (
    LARGEST_NOTE,
    Checkpoint,
    parse_checkpoint,
    parse_verifier_key,
    sign_checkpoint,
)
from proctor.ledger.signature import check_signature
from proctor.ledger.tree import Tree, leaf_hash

LOG = "arche2025h1.staging.ct.transparency.dev"
NOTE = f"""\
{LOG}
1432088532
U7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=

— {LOG} ui8GwCF1+kWqZrxGdhj4aX3gcw7XUlXQQabg/27lefwhUkzbC3NygNI75MdhL1bfTW9g8Ei59RA23oHP7Ry1k3ZFWwQ=
— remora.n621.de 2net5wAAAABqEiEgPlfF3V06o0Y+fHM+J5J9s27wgxxcOVSpZ/2g/KSiXCg9DEZI+aVCIobWX9sXTynk5XeU/zZ0WBxtqB0DrAWfBw==
""".encode()  # noqa: E501 - as it was published
"""A checkpoint of a public log of certificates, with the cosignature of a witness."""
LOG_KEY = f"{LOG}+ba2f06c0+AU0vHmlGCS/PdN8b2OaGmKprLI8HKM+dJ472xgFYh15f"
WITNESS_KEY = "remora.n621.de+da77ade7+BOvN63jn/bLvkieywe8R6UYAtVtNbZpXh34x7onlmtw2"
TREE = Tree(3, leaf_hash(b"any root"))


def signed(tmp_path: Path) -> Checkpoint:
    key = make_key(tmp_path / "key", "example.org/me")
    return sign_checkpoint("example.org/ledger", TREE, key.verifier, key.sign)


def test_a_published_checkpoint_is_read_and_its_signatures_hold() -> None:
    checkpoint = parse_checkpoint(NOTE, "note")
    assert (checkpoint.origin, checkpoint.tree.size) == (LOG, 1432088532)
    check_signature(checkpoint, parse_verifier_key(LOG_KEY), "note")
    assert checkpoint.render() == NOTE


def test_a_published_key_is_written_as_it_was_read() -> None:
    assert str(parse_verifier_key(LOG_KEY)) == LOG_KEY


def test_the_key_of_a_witness_is_no_key_of_a_log() -> None:
    with pytest.raises(KeyFileError, match="not an Ed25519 public key"):
        parse_verifier_key(WITNESS_KEY)


def test_a_published_signature_holds_for_nothing_else() -> None:
    other = parse_checkpoint(NOTE.replace(b"1432088532", b"1432088533"), "note")
    with pytest.raises(SignatureError, match="is invalid"):
        check_signature(other, parse_verifier_key(LOG_KEY), "note")


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    checkpoint = signed(tmp_path)
    assert parse_checkpoint(checkpoint.render(), "x") == checkpoint


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "three lines"),
        (b"\n\n\n", "three lines"),
        (b"o\n1\n", "three lines"),
        (NOTE.replace(b"\n\n", b"\nmore\n\n"), "three lines"),
        (NOTE[:-1], "incomplete"),
        (NOTE + b"x", "incomplete"),
        (NOTE + b"x\n", "not a signature line"),
        (NOTE.replace("—".encode(), b"-"), "not a signature line"),
        (NOTE.replace(b"\n14", b"\n014"), "whole number"),
        (NOTE.replace(b"\n14", b"\n-14"), "whole number"),
        (NOTE.replace(b"\n14", b"\n" + b"9" * 5000), "whole number"),
        (NOTE.replace(b"4Ro=", b"4Rp="), "extra bytes"),
        (NOTE.replace(b"4Ro=", b"4R=="), "base64 of 32 bytes"),
        (NOTE.replace(LOG.encode(), b"", 1), "origin"),
        (b"\xff" + NOTE, "not a checkpoint"),
        (NOTE + b"A" * LARGEST_NOTE, "a checkpoint has a few hundred"),
        (b"A" * 1_000_000, "a checkpoint has a few hundred"),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_a_sentence(data: bytes, why: str) -> None:
    with pytest.raises(NoteError, match=f"^note: .*{why}"):
        parse_checkpoint(data, "note")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        LOG_KEY.replace("ba2f06c0", "ba2f06c1"),
        LOG_KEY.replace("AU0v", "Ak0v"),
        LOG_KEY[:-4],
        LOG_KEY.replace("arche", "ar che"),
        "A" * 1_000_000,
    ],
)
def test_what_is_no_public_key_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(KeyFileError) as refused:
        parse_verifier_key(text)
    assert len(str(refused.value)) < 400
