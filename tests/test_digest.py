"""Digests, with hashlib for a second opinion."""

import hashlib
import io
from pathlib import Path

import pytest

from proctor.digest import Sha256Reader, is_digest, sha256_file, sha256_hex

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_digest_of_nothing_is_the_known_one(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert sha256_hex(b"") == sha256_file(tmp_path / "f") == EMPTY


@pytest.mark.parametrize("size", [1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_a_file_and_its_bytes_have_one_digest(tmp_path: Path, size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "f").write_bytes(data[:size])
    expected = hashlib.sha256(data[:size]).hexdigest()
    assert sha256_file(tmp_path / "f") == sha256_hex(data[:size]) == expected


def test_a_stream_that_is_read_through_has_the_digest_of_what_was_read() -> None:
    reader = Sha256Reader(io.BytesIO(b"abcdef"))
    assert (reader.read(2), reader.digest) == (b"ab", sha256_hex(b"ab"))
    assert (reader.read(), reader.digest) == (b"cdef", sha256_hex(b"abcdef"))


def test_a_digest_is_64_lower_case_hex_digits() -> None:
    assert is_digest("0123456789abcdef" * 4)
    assert not is_digest("0123456789abcdef" * 3)
    assert not is_digest("0123456789ABCDEF" * 4)
