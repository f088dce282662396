"""`proctor trace writer`: the one file that a harness copies."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from proctor.traces import writer
from tests.cli.programs import Proctor, run_child

SOURCE = Path(writer.__file__).read_bytes()


@pytest.mark.parametrize("words", [(), ("-o", "-")])
def test_the_writer_is_printed_to_the_letter(words: tuple[str, ...]) -> None:
    ran = run_child("trace", "writer", *words, env={"LC_ALL": "C", "PYTHONUTF8": "0"})
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.encode() == SOURCE


def test_the_writer_is_written_to_a_file_but_not_over_another(
    proctor: Proctor, tmp_path: Path
) -> None:
    path = tmp_path / "trajectory_writer.py"
    digest = hashlib.sha256(SOURCE).hexdigest()
    for _ in range(2):
        ran = proctor("trace", "writer", "-o", path)
        assert (ran.code, ran.out) == (0, f"{path}: written; sha256 {digest}\n")
        assert path.read_bytes() == SOURCE
    path.write_bytes(b"mine")
    ran = proctor("trace", "writer", "-o", path)
    assert ran.code == 2
    assert (
        ran.err
        == f"proctor: {path}: exists and is not overwritten; remove it or choose another name\n"
    )
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("name", [".", "none/writer.py", "pipe"])
def test_the_writer_is_written_only_where_a_file_can_be(
    proctor: Proctor, tmp_path: Path, name: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = proctor("trace", "writer", "-o", tmp_path / name)
    assert ran.code == 2
    assert ran.err.startswith(f"proctor: {tmp_path / name}: ")


def test_the_writer_as_json_names_its_digest(proctor: Proctor, tmp_path: Path) -> None:
    printed = json.loads(proctor("trace", "writer", "--json").out)
    assert printed["source"].encode() == SOURCE
    assert printed["sha256"] == hashlib.sha256(SOURCE).hexdigest()
    written = json.loads(proctor("trace", "writer", "--json", "-o", tmp_path / "w.py").out)
    assert written == {
        "name": "trajectory_writer.py",
        "sha256": printed["sha256"],
        "size": len(SOURCE),
        "path": str(tmp_path / "w.py"),
    }
