"""Functions stop at 80 lines, files at 700; every broad `except` has its reason beside it.

What is longer is listed here with its reason, and only for as long as it is longer.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests")
FUNCTION_LINES = 80
FILE_LINES = 700

# "path" or "path::function" of something too long, and why it is better so.
EXCUSES: dict[str, str] = {}

# Numbers for people have one form each, of these two modules. Elsewhere, decimals are set in the
# following modules; templates of pages use filters.
FORMATTERS = ("src/proctor/sentence.py", "src/proctor/report/page/figures.py")
DECIMALS: dict[str, str] = {
    "src/proctor/agents/chat/agent.py": "limits of any unit, as they were given",
    "src/proctor/agents/chat/endpoint.py": "a limit in seconds, as it was given",
    "src/proctor/cli/showing/options.py": "a limit in whole seconds",
    "src/proctor/cli/trace/summary_text.py": "tokens per second, a whole number",
    "src/proctor/cli/trace/classify.py": "columns of fixed width",
    "src/proctor/cluster/executor.py": "texts of exceptions",
    "src/proctor/cluster/nodes.py": "texts of exceptions",
    "src/proctor/environments/docker/program.py": "a limit in whole seconds",
    "src/proctor/environments/sandbox/roots/download_sizes.py": "a limit in whole seconds",
    "src/proctor/environments/sandbox/roots/registry/blobs.py": "a limit in whole seconds",
    "src/proctor/environments/sandbox/roots/registry/client.py": "a limit in whole seconds",
    "src/proctor/environments/sandbox/transfer.py": "a limit in whole seconds",
    "src/proctor/gateway/server.py": "a limit in whole seconds",
    "src/proctor/job/running.py": "harbor's line about a retry",
    "src/proctor/ledger/lock.py": "a limit in whole seconds",
    "src/proctor/record/cost.py": "a limit in whole dollars",
    "src/proctor/report/board/model.py": "a setting as it was given",
    "src/proctor/report/gate/judging.py": "a share as it was given",
    "src/proctor/report/gate/output.py": "seconds in JUnit's XML",
    "src/proctor/report/page/scale.py": "marks of an axis",
    "src/proctor/report/page/svg.py": "coordinates",
    "src/proctor/trial/trial_run.py": "stored in findings.json",
    "src/proctor/web/bars.py": "coordinates",
    "src/proctor/web/templates/trial.html": "coordinates",
}
_DECIMALS = re.compile(r"\{[^{}\"]*:[+,<>]?\d*(?:\.\d+)?[fge%]\}")
_IN_TEMPLATE = re.compile(r"\.format\(|[\"'] % |\| *(?:format|round)\b")
# Limits in bytes are written by `render_limit`.
_SHIFTED = re.compile(r"\{[^{}\"]* >> [123]0(?::,)?\}")


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function from its `def` on, docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def functions_in(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file, also those of classes and of functions."""
    todo: list[ast.AST] = [tree]
    while todo:
        for child in ast.iter_child_nodes(todo.pop()):
            # Most nodes are expressions, and none of them holds a `def`.
            if isinstance(child, ast.expr):
                continue
            todo.append(child)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child


def too_long_in(path: Path, name: str) -> Iterator[tuple[str, int]]:
    """The file if it is too long, then its functions that are, each with its length."""
    text = path.read_text(encoding="utf-8")
    if (lines := text.count("\n")) > FILE_LINES:
        yield name, lines
    for function in functions_in(ast.parse(text, filename=name)):
        if (lines := length_of(function)) > FUNCTION_LINES:
            yield f"{name}::{function.name}", lines


def problems_of(root: Path, excuses: dict[str, str]) -> list[str]:
    """Everything too long without an excuse, and every excuse without need."""
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*.py"))]
    ours = [file for file in files if is_ours(file.relative_to(root))]
    found = dict(
        pair for file in ours for pair in too_long_in(file, file.relative_to(root).as_posix())
    )
    long = [
        f"{name}: {lines} lines; split it by noun"
        for name, lines in found.items()
        if name not in excuses
    ]
    stale = [
        f"{name}: excused, but it is short enough or gone; take the excuse out"
        for name in excuses
        if name not in found
    ]
    return long + stale


def is_ours(file: Path) -> bool:
    """Whether we wrote the file: golden vectors and real jobs hold other people's scripts."""
    return not {"vectors", "jobs", "data", "__pycache__"} & set(file.parts)


def test_nothing_is_too_long() -> None:
    assert problems_of(ROOT, EXCUSES) == []


def test_every_excuse_has_a_reason() -> None:
    assert [name for name, reason in EXCUSES.items() if not reason.strip()] == []


def test_every_broad_except_says_why() -> None:
    bare = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if "except Exception" not in line or "#" in line:
                continue
            # Else the reason is on the line above or below.
            beside = lines[number - 1].strip(), lines[number + 1].strip()
            if not any(each.startswith("#") for each in beside):
                bare.append(f"{file.relative_to(ROOT)}:{number + 1}")
    assert bare == []


def test_numbers_for_people_are_formatted_in_one_place() -> None:
    patterns = {"*.py": _DECIMALS, "*.html": _IN_TEMPLATE}
    found = [name for glob, pattern in patterns.items() for name in names_of(glob, pattern)]
    assert sorted({*found} - {*FORMATTERS}) == sorted(DECIMALS)
    assert names_of("*.py", _SHIFTED) == []


def names_of(glob: str, pattern: re.Pattern[str]) -> list[str]:
    """The files of the package in which a pattern is found."""
    files = sorted((ROOT / "src").rglob(glob))
    found = [file for file in files if pattern.search(file.read_text(encoding="utf-8"))]
    return [file.relative_to(ROOT).as_posix() for file in found]


LONG_FUNCTION = "def f():\n" + "    x = 1\n" * FUNCTION_LINES
DOCUMENTED_FUNCTION = 'def f():\n    """One\n    two."""\n' + "    x = 1\n" * (FUNCTION_LINES - 1)
LONG_FILE = "x = 1\n" * (FILE_LINES + 1)


@pytest.mark.parametrize(
    ("text", "excuses", "findings"),
    [
        (LONG_FUNCTION, {}, ["src/a.py::f: 81 lines; split it by noun"]),
        (LONG_FUNCTION, {"src/a.py::f": "a table"}, []),
        (DOCUMENTED_FUNCTION, {}, []),
        (LONG_FILE, {}, ["src/a.py: 701 lines; split it by noun"]),
        (
            "",
            {"src/a.py": "x"},
            ["src/a.py: excused, but it is short enough or gone; take the excuse out"],
        ),
    ],
)
def test_the_judge_says(
    tmp_path: Path, text: str, excuses: dict[str, str], findings: list[str]
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(text)
    assert problems_of(tmp_path, excuses) == findings
