"""`python -m tests.pinned.update`: run every pinned case and write the golden files anew.

Read `git diff tests/pinned/golden` before you commit. Nothing is written in CI: there, a changed
output has to fail.
"""

import os
import sys
from collections.abc import Mapping

from tests.pinned.golden import load_golden, observe_all, replace_golden


def main(environment: Mapping[str, str]) -> int:
    """Update the golden files; the exit code."""
    if environment.get("CI"):
        print("CI is set: pinned outputs are not updated in CI", file=sys.stderr)  # noqa: T201
        return 2
    files = observe_all()
    changed = sum(load_golden(name) != text for name, text in files.items())
    replace_golden(files)
    size = sum(len(text.encode()) for text in files.values())
    print(f"{len(files)} golden files, {size:,} bytes; {changed} new or changed")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
