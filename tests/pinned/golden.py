"""The golden files: where they are, and how they are read and replaced."""

import shutil
import tempfile
from pathlib import Path

from tests.pinned.cases import CASES, PAGES
from tests.pinned.observing import observe_facts, observe_page, observe_words
from tests.pinned.workspace import make_workspace

GOLDEN = Path(__file__).resolve().parent / "golden"


def load_golden(name: str) -> str | None:
    """A golden file by its path; None if there is none."""
    path = GOLDEN / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def find_golden() -> set[str]:
    """Paths of all golden files."""
    return {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()}


def find_belonging(case_name: str, folders: tuple[str, ...]) -> set[str]:
    """Paths of the golden files of a case, in some of the folders."""
    places = [GOLDEN / folder / case_name for folder in folders]
    files = [place.with_name(f"{place.name}.out") for place in places]
    files += [path for place in places for path in place.rglob("*")]
    return {path.relative_to(GOLDEN).as_posix() for path in files if path.is_file()}


def observe_all() -> dict[str, str]:
    """All golden files as they should be, by running every case."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        workspace = make_workspace(Path(place).resolve())
        for case in CASES:
            found |= observe_facts(case, workspace) if case.has_facts else {}
            found |= observe_words(case, workspace) if case.has_text else {}
        for page in PAGES:
            found |= observe_page(page, workspace)
    return found


def replace_golden(files: dict[str, str]) -> None:
    """Write all golden files anew, and nothing else stays."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for name, text in files.items():
        path = GOLDEN / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
