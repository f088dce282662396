"""What pytest does before a test: load every plugin that is installed."""

import runpy
from importlib.metadata import entry_points
from pathlib import Path

for plugin in entry_points(group="pytest11"):
    plugin.load()
runpy.run_path(str(Path(__file__).with_name("check_answer.py")))["test_the_answer"]()
