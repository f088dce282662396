"""`proctor demo-data`: made-up runs in a new directory."""

from pathlib import Path

from tests.cli.programs import Proctor


def test_a_directory_that_is_not_empty_is_refused(proctor: Proctor, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    ran = proctor("demo-data", tmp_path)
    assert ran.code == 2
    assert "contains 'mine.txt'; expected an empty directory" in ran.err
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]
