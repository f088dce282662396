"""Settings of projects that say what a test command runs, by what is written in them.

A project's own settings are in most of these files, so that their names say nothing.
"""

import posixpath
import re
from collections.abc import Iterator

import msgspec

from proctor.environments.sandbox.changes import LayeredChanges

_PYTEST = re.compile(r"^\s*\[tool[.:]pytest", re.MULTILINE)
_CHOOSING = re.compile(
    r"python_(files|functions|classes)|norecursedirs|collect_ignore|testpaths|"
    r"""addopts.{0,200}?(--co\b|--collect|-p\b|-k\b|-m\b|-h\b|-V\b|--ver|--help|--ignore|--desel|"""
    r"--setup|--fixtures|--markers|--cache|--noconf|--pyargs|--override|-o\b|-c\b|--rootdir|--lf)",
    re.DOTALL,
)
_FILES = ("pyproject.toml", "setup.cfg")
_PACKAGE = "package.json"


def find_test_settings(changes: LayeredChanges, workdir: str) -> Iterator[str]:
    """Files in a directory, or above it, that choose what tests run, and are not the image's."""
    place = workdir
    while place != "/":
        for name in changes.list_written(place):
            path = f"{place}/{name}"
            if (
                name in _FILES and _chooses(changes.read_now(path), changes.read_in_image(path))
            ) or (name == _PACKAGE and _changes_scripts(changes, path)):
                yield path
        place = posixpath.dirname(place)


def _chooses(now: str, before: str) -> bool:
    return now != before and bool(_PYTEST.search(now)) and bool(_CHOOSING.search(now))


def _changes_scripts(changes: LayeredChanges, path: str) -> bool:
    before = _load_scripts(changes.read_in_image(path))
    return bool(before) and before != _load_scripts(changes.read_now(path))


def _load_scripts(text: str) -> dict[str, object]:
    """What a package's test commands are; nothing where the text is no such file."""
    try:
        found = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return {}
    scripts = found.get("scripts")
    commands = scripts if isinstance(scripts, dict) else {}
    return {name: text for name, text in commands.items() if "test" in str(name)}
