"""Style sheets as text: pages that stand by themselves carry them inside."""

from pathlib import Path
from typing import Final

_STATIC: Final = Path(__file__).parent / "static"


def load_style(name: str = "style.css") -> str:
    """A style sheet; the one that all pages share, unless another is named."""
    return (_STATIC / name).read_text(encoding="utf-8")
