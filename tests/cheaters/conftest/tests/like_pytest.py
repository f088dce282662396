"""What pytest does before a test: find the root, and load every conftest.py from there on."""

import runpy
from pathlib import Path

NAMES = ("pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml")
HERE = Path(__file__).parent

is_root = any((HERE.parent / name).exists() for name in NAMES)
for place in (HERE.parent, HERE) if is_root else (HERE,):
    if (place / "conftest.py").exists():
        runpy.run_path(str(place / "conftest.py"))
runpy.run_path(str(HERE / "check_answer.py"))["test_the_answer"]()
