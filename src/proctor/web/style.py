"""The style that all pages share, as text: pages that stand by themselves carry it in them."""

from pathlib import Path
from typing import Final

_STYLE: Final = Path(__file__).parent / "static" / "style.css"


def load_style() -> str:
    """The style sheet."""
    return _STYLE.read_text(encoding="utf-8")
