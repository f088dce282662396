"""The map of the package, and the judge of its imports.

It reads source, it never imports it: an import inside a function or under TYPE_CHECKING counts
like any other.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "proctor"

# A unit imports only units on lines below its own; units on one line do not know each other.
LAYERS = (
    ("__main__",),
    ("api", "cli"),
    ("serve",),
    ("web",),
    ("cluster", "rerun", "report"),
    ("exchange", "job", "search"),
    ("agents", "environments", "gateway"),
    ("ledger",),
    ("trial", "audit"),
    ("harbor",),
    ("traces",),
    ("record",),
    ("task", "reward"),
    (
        "backoff",
        "contained",
        "diagnostic",
        "digest",
        "files",
        "filesystems",
        "json_values",
        "plugin",
        "times",
    ),
    ("errors", "sentence"),
)
HEIGHT = {unit: -line for line, units in enumerate(LAYERS) for unit in units}

# Modules that are loaded on use, because most runs do not need them and they are slow to load. The
# command table loads its commands likewise. All of them still have to point down the map.
LOADED_ON_USE = frozenset(
    {
        "proctor.agents.chat.agent",
        "proctor.agents.chat.settings",
        "proctor.agents.replay",
        "proctor.api",
        "proctor.cluster.executor",
        "proctor.environments.docker.program",
        "proctor.environments.docker.environment",
        "proctor.environments.docker.image",
        "proctor.environments.docker.reap",
        "proctor.environments.docker.refusals",
        "proctor.environments.sandbox.environment",
        "proctor.environments.sandbox.preflight",
        "proctor.environments.sandbox.reap",
        "proctor.environments.sandbox.roots.bases",
        "proctor.environments.sandbox.roots.download_sizes",
        "proctor.environments.sandbox.roots.host_base",
        "proctor.environments.sandbox.roots.images",
        "proctor.environments.sandbox.roots.pull",
        "proctor.environments.sandbox.scratch",
        "proctor.gateway.gateway",
        "proctor.job.needs",
        "proctor.job.registry",
        "proctor.ledger.remote.bucket",
        "proctor.ledger.remote.mirror",
        "proctor.agents.chat.judging",
        "proctor.record.generation2",
        "proctor.record.prices",
        "proctor.reward.coerce",
        "proctor.reward.script",
        "proctor.traces.trace",
    }
)

# Packages from elsewhere. Whatever a unit needs beyond the first set is named here, unit by unit.
EVERYWHERE = frozenset({"msgspec", "pydantic", "pydantic_core"})
BESIDES = {
    "agents": frozenset({"httpx"}),
    "api": frozenset({"pandas", "polars"}),
    "cli": frozenset({"click", "rich"}),
    "cluster": frozenset({"grpc", "ray"}),
    "environments": frozenset({"backports", "httpx"}),
    "exchange": frozenset({"httpx", "inspect_ai", "pyarrow"}),
    "gateway": frozenset({"httpcore", "httpx", "uvicorn"}),
    "job": frozenset({"yaml"}),
    "ledger": frozenset({"backports", "certifi", "cryptography", "obstore"}),
    "record": frozenset({"genai_prices"}),
    "search": frozenset({"backports"}),
    "serve": frozenset({"anyio", "httpx", "starlette"}),
    "report": frozenset({"jinja2", "markupsafe", "scipy"}),
    "task": frozenset({"pathspec", "yaml"}),
    "web": frozenset({"anyio", "h11", "jinja2", "markupsafe", "starlette", "uvicorn"}),
}


BY_NAME = "importlib.import_module:"


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement, as one name it brings in."""

    where: str
    unit: str
    target: str
    in_function: bool
    relative: bool


def unit_of(path: Path, source: Path) -> str:
    """The unit a file belongs to; the package's own `__init__` is the unit `proctor`."""
    first = path.relative_to(source).parts[0].removesuffix(".py")
    return "proctor" if first == "__init__" else first


def targets_of(node: ast.AST) -> list[str]:
    """The dotted names a statement imports, or asks the import machinery for by a call."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names):
            return [f"{module or ''}.{alias.name}" for alias in names]
        case ast.Call(
            func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
            args=args,
        ):
            named = [str(a.value) for a in args if isinstance(a, ast.Constant)]
            return [f"{BY_NAME} {' '.join(named)}"]
    return []


def nodes_in(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """All of a file in order, each with whether it stands in a function."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    # Not recursive: a million nodes would each pass through a generator of every node above them.
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, in_function = todo.pop()
        yield node, in_function
        inside = in_function or isinstance(node, functions)
        todo += [(child, inside) for child in ast.iter_child_nodes(node)][::-1]


def imports_in(path: Path, source: Path) -> Iterator[Import]:
    """Every import of one file, wherever in the file it stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    name, unit = path.relative_to(source), unit_of(path, source)
    for node, in_function in nodes_in(tree):
        for target in targets_of(node):
            where = f"{name}:{getattr(node, 'lineno', 0)}"
            relative = isinstance(node, ast.ImportFrom) and node.level > 0
            yield Import(where, unit, target, in_function, relative)


def problem_with(found: Import) -> str | None:
    """What is wrong with one import, or None."""
    top, _, rest = found.target.partition(".")
    if found.target.startswith(BY_NAME):
        return problem_by_name(found.unit, found.target.removeprefix(BY_NAME).strip())
    if found.relative:
        return f"imports {found.target} relatively; write it from proctor on"
    if found.in_function:
        return f"imports {found.target} inside a function; move it to the top"
    if top == "proctor":
        return problem_between(found.unit, rest.partition(".")[0])
    if top in sys.stdlib_module_names:
        return None
    allowed = EVERYWHERE | BESIDES.get(found.unit, frozenset())
    return (
        None
        if top in allowed
        else f"imports {top}; {found.unit} may use {', '.join(sorted(allowed))}"
    )


def problem_by_name(unit: str, module: str) -> str | None:
    """What is wrong with one unit loading a module by its name at run time, or None."""
    if module in LOADED_ON_USE:
        return problem_between(unit, module.split(".")[1])
    return None if unit in ("cli", "plugin") else "imports by name at run time; only cli may"


def problem_between(unit: str, other: str) -> str | None:
    """What is wrong with one unit importing another, or None."""
    if unit == other or unit not in HEIGHT or other not in HEIGHT:
        # A name of the package itself, such as __version__; unplaced units are reported once each.
        return None
    if HEIGHT[unit] == HEIGHT[other]:
        return f"{unit} imports {other}, which stands on the same line of the map"
    if HEIGHT[unit] < HEIGHT[other]:
        return f"{unit} imports {other}, which stands above it on the map"
    return None


def problems_of(source: Path) -> list[str]:
    """Everything in a source tree that does not fit the map."""
    files = sorted(source.rglob("*.py"))
    unplaced = sorted({unit_of(f, source) for f in files} - HEIGHT.keys() - {"proctor"})
    problems = [
        f"{unit}: not on the map; give it a line in tests/test_layers.py" for unit in unplaced
    ]
    for file in files:
        for found in imports_in(file, source):
            if problem := problem_with(found):
                problems.append(f"{found.where}: {problem}")
    return problems


def test_every_import_points_down() -> None:
    assert problems_of(SOURCE) == []


def test_the_package_itself_imports_nothing_but_its_interface() -> None:
    # Every command imports it: the interface stands under TYPE_CHECKING, and is loaded on use.
    targets = {found.target for found in imports_in(SOURCE / "__init__.py", SOURCE)}
    assert targets == {
        "importlib",
        "typing.Any",
        "typing.TYPE_CHECKING",
        "proctor.api.compare",
        "proctor.api.load",
        f"{BY_NAME} proctor.api",
    }


def test_every_unit_stands_on_the_map_once() -> None:
    units = [unit for line in LAYERS for unit in line]
    assert len(units) == len(set(units))


def judged(tmp_path: Path, files: dict[str, str]) -> list[str]:
    """The judge's findings on a small tree."""
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return problems_of(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        (
            "reward/parse.py",
            "def late():\n    from proctor.harbor import job\n",
            "reward/parse.py:2: imports proctor.harbor.job inside a function; move it to the top",
        ),
        (
            "reward/parse.py",
            "from proctor.harbor.job import Job\n",
            "reward/parse.py:1: reward imports harbor, which stands above it on the map",
        ),
        (
            "reward/parse.py",
            "from proctor import task\n",
            "reward/parse.py:1: reward imports task, which stands on the same line of the map",
        ),
        (
            "digest.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import proctor.files\n",
            "digest.py:3: digest imports files, which stands on the same line of the map",
        ),
        (
            "misc.py",
            "",
            "misc: not on the map; give it a line in tests/test_layers.py",
        ),
        (
            "reward/parse.py",
            "from . import metrics\n",
            "reward/parse.py:1: imports .metrics relatively; write it from proctor on",
        ),
        (
            "harbor/line.py",
            "import click\n",
            "harbor/line.py:1: imports click; harbor may use msgspec, pydantic, pydantic_core",
        ),
        (
            "harbor/line.py",
            "import importlib\nimportlib.import_module('proctor.cli')\n",
            "harbor/line.py:2: imports by name at run time; only cli may",
        ),
        (
            "files.py",
            "import importlib\nimportlib.import_module('proctor.reward.script')\n",
            "files.py:2: files imports reward, which stands above it on the map",
        ),
    ],
)
def test_the_judge_sees(tmp_path: Path, name: str, text: str, finding: str) -> None:
    assert judged(tmp_path, {name: text}) == [finding]


def test_the_judge_lets_honest_imports_pass(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "cli/main.py": "import click\nfrom proctor import __version__\nimport proctor.audit\n",
        "cli/table.py": "import importlib\nimportlib.import_module('proctor.cli.main')\n",
        "audit/job.py": "import re\nimport proctor.errors\nfrom proctor.audit import kinds\n",
    }
    assert judged(tmp_path, files) == []
