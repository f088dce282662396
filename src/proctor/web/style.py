"""Style sheets as text, for pages that embed them."""

from pathlib import Path
from typing import Final

_STATIC: Final = Path(__file__).parent / "static"


def load_style(name: str = "style.css") -> str:
    """Load a style sheet; by default the one that all pages share."""
    return (_STATIC / name).read_text(encoding="utf-8")
