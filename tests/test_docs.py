"""What the documents say is so: commands, examples, maps, error classes, invariants, links.

An example is a fenced block marked `console`. Its lines that start with `$ ` are run; the lines
after each must be its output, to the letter. Some pages are pasted into an empty directory (PASTED
of scripts/readme-examples), the others run in the root of the repository. Blocks with another mark
are not run.
"""

import ast
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from proctor import __version__
from proctor.cli.main import COMMANDS
from tests.tiers import TIERS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "proctor"
PAGES = ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))]
FOLDERS = [
    *sorted(p.parent.relative_to(ROOT).as_posix() for p in SOURCE.glob("*/__init__.py")),
    "benchmarks",
]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, mark: str) -> list[str]:
    """The contents of a page's fenced blocks that carry a mark."""
    return [body for found, body in FENCE.findall(text) if found == mark]


def sections(text: str) -> dict[str, str]:
    """A page's second-level headings, each with what stands under it."""
    parts = re.split(r"^## +(.*)$", text, flags=re.MULTILINE)
    return {title.strip(): body for title, body in zip(parts[1::2], parts[2::2], strict=True)}


# Commands


def generate(page: str) -> str:
    """A generated page as it should be."""
    command = [sys.executable, str(ROOT / "scripts" / "cli-docs"), "--stdout", page]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.fixture(scope="module")
def generated_page() -> str:
    return generate("cli")


@pytest.mark.process
def test_the_page_of_fields_is_what_the_schema_says() -> None:
    assert read("docs/reference/record-fields.md") == generate("record-fields"), (
        "make docs writes it anew"
    )


@pytest.mark.parametrize("arguments", ["", *COMMANDS])
def test_the_page_of_commands_is_what_the_program_prints(
    generated_page: str, arguments: str
) -> None:
    name = f"proctor {arguments}".strip()
    (shown,) = blocks(sections(generated_page)[name], "text")
    assert shown == run_example(f"{name} --help")


def test_every_command_shows_an_example_and_offers_json(generated_page: str) -> None:
    commands = {
        name: text
        for name, text in sections(generated_page).items()
        if name != "proctor" and "\nCommands:\n" not in text
    }
    assert commands
    assert [name for name, text in commands.items() if "Example" not in text] == []
    without = {name for name, text in commands.items() if "--json" not in text}
    assert without == set()


# Examples


def examples(text: str) -> Iterator[tuple[str, str]]:
    """Every command of a page's console blocks with the output printed under it."""
    for block in blocks(text, "console"):
        head, *rest = re.split(r"^\$ ", block, flags=re.MULTILINE)
        assert not head.strip(), (
            f"a console block starts with {head!r}; expected a line that starts with '$ '"
        )
        for part in rest:
            command, _, output = part.partition("\n")
            yield command, output


SCRIPT = runpy.run_path(str(ROOT / "scripts" / "readme-examples"))
run_example: Callable[..., str] = SCRIPT["run"]
"""What a command prints, as the page has it."""


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES)
def test_examples_print_what_the_page_says(page: str) -> None:
    with SCRIPT["place_for"](page) as place:
        for command, expected in examples(read(page)):
            printed = run_example(command, place)
            assert printed.rstrip("\n") == expected.rstrip("\n"), f"{page}: $ {command}"


def test_the_readme_is_short_and_shows_the_program_working() -> None:
    assert len(read("README.md").splitlines()) <= 150
    assert any(command.startswith("proctor run ") for command, _ in examples(read("README.md")))


# Dependencies


def test_every_dependency_has_its_reason() -> None:
    declared = read("pyproject.toml").partition("\ndependencies = [\n")[2].partition("\n]")[0]
    lines = [line.strip() for line in declared.splitlines()]
    bare = [line for before, line in pairwise(["", *lines]) if line[0] + before[:1] != '"#']
    assert [line for line in bare if not line.startswith("#")] == []


def installed_sizes(name: str, seen: set[str]) -> Iterator[int]:
    """Sizes of the files of a distribution and its dependencies; code twice, as compiled too."""
    found = metadata.distribution(name)
    if found.name in seen:
        return
    seen.add(found.name)
    for file in found.files or []:
        path = Path(str(file.locate()))
        if path.suffix != ".pyc" and path.is_file():
            yield path.stat().st_size * (2 if path.suffix == ".py" else 1)
    for needed in map(Requirement, found.requires or []):
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield from installed_sizes(needed.name, seen)


def test_the_readme_says_how_much_is_installed() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    said = re.search(r"(\d+) direct dependencies, (\d+) MB in total", read("README.md"))
    assert said is not None
    assert int(said[1]) == len(project["dependencies"])
    ours = (path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    own = sum(path.stat().st_size * (2 if path.suffix == ".py" else 1) for path in ours)
    total = (sum(installed_sizes("proctor", set())) + own) / 1e6
    assert int(said[2]) == pytest.approx(total, rel=0.1)


# The site


def nav_pages(node: object) -> Iterator[str]:
    """The pages below a part of the site's navigation."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list | dict):
        for child in node.values() if isinstance(node, dict) else node:
            yield from nav_pages(child)


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    _, _, nav = read("mkdocs.yml").partition("\nnav:\n")
    listed = sorted(nav_pages(yaml.safe_load(nav)))
    kept = [page.removeprefix("docs/") for page in PAGES if page != "README.md"]
    assert listed == sorted([*kept, "reference/cli.md"])  # generated when the site is built


@pytest.mark.process
def test_the_site_builds_without_a_dead_link() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "site")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "proctor gate" in read("build/site/guide/gate/index.html")


@pytest.mark.process
@pytest.mark.parametrize(("limits", "code"), [("--min-mean 0.5", 0), ("--min-mean 0.9", 1)])
def test_the_action_gates_and_writes_the_summary(tmp_path: Path, limits: str, code: int) -> None:
    (step,) = yaml.safe_load(read("action.yml"))["runs"]["steps"]
    programs = tmp_path / "proctor" / "bin"
    programs.mkdir(parents=True)
    # An environment is made and filled in the workflow; here it is the one that runs the tests.
    for name, text in {
        tmp_path / "python3": "exit 0",
        programs / "pip": "exit 0",
        programs / "proctor": f'exec "{Path(sys.executable).with_name("proctor")}" "$@"',
    }.items():
        name.write_text(f"#!/bin/sh\n{text}\n")
        name.chmod(0o755)
    job = ROOT / "tests" / "data" / "harbor" / "jobs" / "01-binary-oracle-k1"
    env = {
        "PROCTOR_BASE": "host",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "RUN": str(job),
        "LIMITS": limits,
        "JUNIT": str(tmp_path / "gate.xml"),
        "VERSION": "",
        "SOURCE": str(ROOT),
    }
    ran = subprocess.run(["bash", "-c", step["run"]], env=env, capture_output=True, check=False)
    assert ran.returncode == code, ran.stderr
    assert b"01-binary-oracle-k1" in (tmp_path / "summary.md").read_bytes()
    assert (tmp_path / "gate.xml").is_file()


# Maps


def units() -> set[str]:
    """The units of the package: folders with source in them, and single files."""
    folders = {p.parent.relative_to(SOURCE).parts[0] for p in SOURCE.glob("*/**/*.py")}
    return folders | {p.name for p in SOURCE.glob("*.py")} - {"__init__.py"}


def test_the_map_equals_the_tree() -> None:
    _, _, after = read("docs/architecture.md").partition("\n## The tree\n")
    block = FENCE.search(after)
    assert block, "docs/architecture.md: expected a fenced block after the heading 'The tree'"
    paths = [
        line.split()[0].rstrip("/") for line in block[2].splitlines() if "/" in line.split(" ")[0]
    ]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert {
        path.removeprefix("src/proctor/") for path in paths if path.startswith("src/proctor/")
    } == units()


def listed_modules(docstring: str) -> list[str]:
    """The names at the start of a docstring's indented lines, apart from the text after them."""
    found = re.findall(r"^ {4}(\w+(?:, \w+)*) {2,}\S", docstring, re.MULTILINE)
    return [name for names in found for name in names.split(", ")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_lists_its_modules(folder: str) -> None:
    docstring = ast.get_docstring(ast.parse(read(f"{folder}/__init__.py")), clean=False)
    modules = {path.stem for path in (ROOT / folder).glob("*.py")}
    assert sorted(listed_modules(docstring or "")) == sorted(modules - {"__init__", "__main__"})


def slug(heading: str) -> str:
    """The anchor that a heading gets on a rendered page."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    return set(map(slug, re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)))


def broken_links(page: str) -> Iterator[str]:
    """The links of a page to files or headings of this repository that are not there."""
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", read(page))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            yield link


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_local_link_leads_somewhere(page: str) -> None:
    assert list(broken_links(page)) == []


# Errors


def error_classes() -> dict[str, set[str]]:
    """The classes of errors.py, each with the names of its bases."""
    tree = ast.parse(read("src/proctor/errors.py"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {c.name: {ast.unparse(base) for base in c.bases} for c in classes}


def drawn_tree(docstring: str) -> dict[str, str]:
    """The classes drawn in a docstring, each with the one it hangs from ('' for a root)."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in docstring.splitlines():
        if found := re.match(r"^[\s│├└─|`+-]*\b([A-Z]\w*(?:Error|Warning))\b", line):
            above = [pair for pair in above if pair[0] < found.start(1)]
            parents[found[1]] = above[-1][1] if above else ""
            above.append((found.start(1), found[1]))
    return parents


def test_every_error_class_is_drawn_where_it_belongs() -> None:
    drawn = drawn_tree(ast.get_docstring(ast.parse(read("src/proctor/errors.py"))) or "")
    classes = error_classes()
    assert drawn.keys() == classes.keys()
    assert {
        name: parent for name, parent in drawn.items() if parent and parent not in classes[name]
    } == {}


def test_every_error_class_is_met_in_some_test() -> None:
    words = {
        word
        for file in (ROOT / "tests").rglob("*.py")
        for word in re.findall(r"\w+", file.read_text())
    }
    assert error_classes().keys() - words == set()


# Invariants


def functions_in(path: Path) -> set[str]:
    """The names of the functions in a file; none if there is no such file."""
    if not path.is_file():
        return set()
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def invariants() -> list[str]:
    """The paragraphs and list items under the second-level headings of the page."""
    text = "\n\n".join(sections(read("docs/assurance/invariants.md")).values())
    return [part.strip() for part in re.split(r"\n\s*\n|\n(?=[-*] |\d+\. )", text) if part.strip()]


def test_every_invariant_names_a_test_that_exists() -> None:
    assert invariants()
    for paragraph in invariants():
        named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)[^`]*`", paragraph)
        assert named, f"names no `tests/…::test_…`: {paragraph}"
        for file, test in named:
            assert test.split("::")[-1] in functions_in(ROOT / file), (
                f"no such test: {file}::{test}"
            )


# The repository


# Written in two halves, so that this file does not hold what it looks for.
FOREIGN = re.compile(
    "|".join(
        re.escape(left + right)
        for left, right in [
            ("pypi", ".org"),
            ("python", "hosted.org"),
            ("registry.", "npmjs"),
            ("registry.", "yarnpkg"),
            ("conda.", "anaconda.org"),
            ("/work/", "main"),
            ("/work/", "shared"),
            ("/opt/", "wheels"),
            ("/opt/", "pypi"),
            ("/ro", "ot/.pyenv"),
            ("/ro", "ot/.local"),
            ("/ro", "ot/.cache"),
        ]
    )
)
MADE = re.compile(
    r"^(\.git|\.venv.*|\.tools|\..*_cache|\.coverage.*|\.hypothesis|__pycache__|build|dist|mutants|uv\.lock)$"
)


def kept_files() -> Iterator[Path]:
    """The files that are kept in git, found without git: whatever no tool has made."""
    for folder, folders, names in ROOT.walk():
        folders[:] = sorted(name for name in folders if not MADE.match(name))
        yield from (folder / name for name in names if not MADE.match(name))


def test_no_file_names_a_path_of_one_machine_or_a_registry() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in kept_files()
        if file.is_file()
        and (match := FOREIGN.search(file.read_text(encoding="utf-8", errors="replace")))
    ]
    assert found == []


def test_the_version_is_the_same_everywhere() -> None:
    assert tomllib.loads(read("pyproject.toml"))["project"]["version"] == __version__


def test_the_changelog_has_room_for_what_comes_next() -> None:
    headings = re.findall(r"^## +\[?(\w+)", read("CHANGELOG.md"), re.MULTILINE)
    assert headings[:1] == ["Unreleased"]


def test_ci_and_people_run_the_same_commands() -> None:
    assert "make test" in read(".ci/run")
    workflow = yaml.safe_load(read(".github/workflows/test.yml"))
    parts = workflow["jobs"]["test"]["strategy"]["matrix"]["part"]
    (tested,) = re.findall(r"^test: (.*?)  ##", read("Makefile"), re.MULTILINE)
    tiers = [f"tier-{tier}" for tier in TIERS if tier != "soak"]
    assert sorted(parts) == sorted({*tested.split(), *tiers} - {"pytest"})
