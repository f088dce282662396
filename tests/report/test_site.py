"""Pages of single trials: bounded, and said to be where they are."""

import json
import shutil
from pathlib import Path

from proctor.exchange.traced_files import find_in_files
from proctor.report.page.blocks import Cell, Lines, Paragraph, Table
from proctor.report.site.changes import tell_changes
from proctor.report.site.steps import MOST_STEPS, cut_text, tell_trace
from tests.audit.directories import COPIED
from tests.trial.changed import change, changes, differing

NAME = "pass-simple__35oQqES"


def write_trace(place: Path, steps: int, text: str) -> Path:
    path = place / "trajectory.jsonl"
    with path.open("w") as file:
        for step in range(1, steps + 1):
            file.write(json.dumps({"role": "assistant", "step": step, "content": text}) + "\n")
    return path


def test_a_long_trace_is_cut_aloud(tmp_path: Path) -> None:
    path = write_trace(tmp_path, MOST_STEPS + 50, "hello")
    (trial,) = find_in_files(str(path))
    blocks = list(tell_trace(trial, "e/t"))
    assert sum(isinstance(block, Lines) for block in blocks) == MOST_STEPS
    rest = f"`proctor show e/t --step {MOST_STEPS + 1}-` shows the rest."
    assert blocks[-1] == Paragraph(f"Cut after {MOST_STEPS} steps; {rest}", "warn")


def test_long_texts_do_not_make_a_long_page(tmp_path: Path) -> None:
    path = write_trace(tmp_path, 300, "x" * 100_000)
    (trial,) = find_in_files(str(path))
    lines = [block for block in tell_trace(trial, "e/t") if isinstance(block, Lines)]
    assert sum(len(line) for block in lines for line in block.lines) < 500_000


def test_a_cut_text_keeps_both_ends_and_says_how_much_is_missing() -> None:
    lines = cut_text("a" * 10 + "b" * 100 + "c" * 10, 20)
    assert lines == ["a" * 10, "… 100 characters cut …", "c" * 10]


def test_changes_and_the_clean_room_have_tables(tmp_path: Path) -> None:
    trial = Path(shutil.copytree(COPIED / "04-binary-scripted-k5" / NAME, tmp_path / "job" / NAME))
    (plain,) = find_in_files(str(trial))
    assert list(tell_changes(plain)) == []
    lines = [change(f"/app/{number}") for number in range(300)]
    (trial / "changes.jsonl").write_bytes(changes(*lines, change("/etc/x", place="system")))
    (trial / "clean-room.json").write_bytes(differing())
    (changed,) = find_in_files(str(trial))
    blocks = list(tell_changes(changed))
    paths, rewards = [block for block in blocks if isinstance(block, Table)]
    assert (len(paths.rows), paths.rows[0][:2]) == (200, (Cell("/etc/x"), Cell("system", "warn")))
    assert Paragraph("… and 101 more; changes.jsonl lists them.", "warn") in blocks
    assert [row[1].text for row in rewards.rows] == ["1.0", "0.0", "1.0"]
    (trial / "changes.jsonl").write_bytes(b"5")
    (trial / "clean-room.json").write_bytes(b"5")
    said = [block.text for block in tell_changes(changed) if isinstance(block, Paragraph)]
    assert said[0].endswith("0 home; the record is not complete.")
    assert said[2].startswith("clean-room.json: Expected `object`")
