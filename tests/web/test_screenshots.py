"""The pictures in docs/ are of the pages as they are."""

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("screenshots", str(ROOT / "scripts/screenshots"))
    spec = importlib.util.spec_from_loader("screenshots", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height, from the head of a PNG file."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])


def test_every_main_page_is_there_in_both_widths(script: ModuleType) -> None:
    found = {path.name: size_of(path) for path in script.TARGET.glob("*.png")}
    expected = {f"{page}-{name}.png": size for page in script.PAGES for name, size in SIZES.items()}
    assert found == expected


def test_they_were_made_from_what_the_pages_are_made_of_now(script: ModuleType) -> None:
    stored = (script.TARGET / "sources.sha256").read_text(encoding="ascii").strip()
    assert stored == script.digest_sources(), "`make screenshots` takes them again"


def test_the_page_about_the_viewer_shows_them(script: ModuleType) -> None:
    text = (ROOT / "docs" / "viewer.md").read_text(encoding="utf-8")
    assert [page for page in script.PAGES if f"screenshots/{page}-desktop.png" not in text] == []
