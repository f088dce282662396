"""docs/architecture.md says what is so: its map, its values and the way of a reward."""

import ast
import re
from pathlib import Path

from tests.test_layers import LAYERS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
LINK = re.compile(r"`(\w+)`(?:[^`|()]*)\(?\[[^]]*\]\(\.\./(src/proctor/[\w/]+\.py)\)")


def names_in(path: str) -> set[str]:
    """Everything that a module defines or imports, by name."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    defined = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return defined | assigned


def test_every_name_is_in_the_module_that_the_page_links() -> None:
    linked = LINK.findall(PAGE)
    assert len(linked) >= 25
    assert [(name, path) for name, path in linked if name not in names_in(path)] == []


def test_the_map_has_the_layers_of_the_package() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", PAGE, re.MULTILINE)
    shown = [set(re.findall(r"`(\w+)`", packages)) for _, packages in rows if "`" in packages]
    packages = [
        {unit for unit in line if (ROOT / "src/proctor" / unit).is_dir()} for line in LAYERS
    ]
    assert shown == [line for line in packages if line]
