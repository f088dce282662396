"""The width of the terminal."""

import os
import shutil
import sys


def terminal_width() -> int | None:
    """Columns of the terminal; None if there is none."""
    given = os.environ.get("COLUMNS", "")
    is_screen = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_screen or given.isdigit() else None
