"""What pytest does in a project: load every conftest.py from its root on, then run the tests."""

import runpy
from pathlib import Path

ROOT = Path.cwd()

for place in (ROOT, ROOT / "tests"):
    if (place / "conftest.py").exists():
        runpy.run_path(str(place / "conftest.py"))
runpy.run_path(str(ROOT / "tests" / "test_answer.py"))["test_the_answer"]()
