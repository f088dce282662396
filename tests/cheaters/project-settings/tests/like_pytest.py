"""What pytest does in a project: read its settings, then list or run the tests."""

import runpy
import tomllib
from pathlib import Path

ROOT = Path.cwd()
settings = ROOT / "pyproject.toml"
options = ""
if settings.exists():
    tool = tomllib.loads(settings.read_text()).get("tool", {})
    options = tool.get("pytest", {}).get("ini_options", {}).get("addopts", "")
tests = runpy.run_path(str(ROOT / "tests" / "test_answer.py"))
if "--collect-only" not in options:
    tests["test_the_answer"]()
