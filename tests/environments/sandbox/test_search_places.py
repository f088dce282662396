"""What an image has where programs search, where links lead, and which settings choose tests."""

from dataclasses import replace
from pathlib import Path

import pytest

from proctor.environments.sandbox.accounting import find_ends, find_surroundings, find_test_settings
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.changes import LayeredChanges
from proctor.environments.sandbox.walk import Layers, Limits, list_written

IMAGE = {
    "usr/bin/grep": "",
    "usr/lib/python3/dist-packages/yaml/__init__.py": "",
    "usr/include/assert.h": "",
    "usr/include/sys/stat.h": "",
    "usr/lib/x86_64-linux-gnu/libm.so.6": "",
    "usr/share/perl/5.36/Test/More.pm": "",
    "usr/lib/node_modules/lodash/index.js": "",
    "app/venv/pyvenv.cfg": "",
    "app/package.json": '{"scripts": {"test": "node check.js"}}',
    "app/data.txt": "",
}


def write(top: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(text)


@pytest.fixture
def part(tmp_path: Path) -> Part:
    for name in ("upper", "image"):
        (tmp_path / name).mkdir()
    write(tmp_path / "image", IMAGE)
    return Part("/", (str(tmp_path / "image"),), str(tmp_path / "upper"), str(tmp_path / "work"))


def test_names_of_what_programs_search_for_are_known(part: Part) -> None:
    around = find_surroundings(LayeredChanges((part,)), {"PATH": "/usr/bin"}, "/app")
    expected = {"bin/grep", "python/yaml", "include/assert.h", "include/sys/stat.h", "lib/libm"}
    expected |= {"perl/Test/More.pm", "node/lodash"}
    assert {name for name in expected if name not in around.provided} == set()
    assert "bin/true" not in around.provided
    assert around.environments == ("/app/venv/pyvenv.cfg",)
    assert "/app/venv/bin" in around.search_path


def test_what_one_sandbox_wrote_is_not_found_in_another_on_the_same_image(
    part: Part, tmp_path: Path
) -> None:
    other = replace(part, upper=str(tmp_path / "other"))
    write(Path(part.upper), {"usr/bin/grep": "", "etc/passwd": "a:x:1:1::/agent:/bin/sh"})
    write(Path(other.upper), {"app/new.txt": ""})
    env = {"PATH": "/usr/bin"}
    first, second = (
        find_surroundings(LayeredChanges((one,)), env, "/app") for one in (part, other)
    )
    assert (first.shadowing, second.shadowing) == (("grep",), ())
    assert ("/agent" in first.homes, "/agent" in second.homes) == (True, False)


@pytest.mark.parametrize(
    ("target", "end"),
    [
        ("data.txt", "/app/data.txt"),
        ("/app/venv/../data.txt", "/app/data.txt"),
        ("new.txt", "/app/new.txt"),
        ("second", "/app/new.txt"),
        ("/dev/null", "/dev/null"),
        ("missing", ""),
        ("/tests/expected.txt", ""),
        ("../tests/expected.txt", ""),
        ("top/tests/expected.txt", ""),
        ("/proc/self/cwd/expected.txt", ""),
        ("/dev/fd/63", ""),
        ("/logs/verifier/reward.txt", ""),
        ("link", ""),
    ],
)
def test_a_link_is_followed_as_tests_would(part: Part, target: str, end: str) -> None:
    upper = Path(part.upper)
    write(upper, {"app/new.txt": "", "tests/expected.txt": "planted"})
    (upper / "app" / "second").symlink_to("new.txt")
    (upper / "app" / "top").symlink_to("/")
    (upper / "app" / "link").symlink_to(target)
    layers = Layers(part.target, part.upper, part.lowers)
    written, _ = list_written([layers], {}, Limits())
    assert find_ends(LayeredChanges((part,)), written)["/app/link"] == end


@pytest.mark.parametrize(
    ("name", "text", "is_found"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "--collect-only"\n', True),
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-q"\n', False),
        ("pyproject.toml", '[project]\nname = "own"\n', False),
        ("setup.cfg", "[tool:pytest]\npython_functions = none\n", True),
        ("package.json", '{"scripts": {"test": "true"}}', True),
        ("package.json", '{"scripts": {"test": "node check.js"}, "type": "module"}', False),
        ("package.json", "no JSON", True),
    ],
)
def test_settings_that_choose_what_tests_run_are_found(
    part: Part, name: str, text: str, is_found: bool
) -> None:
    write(Path(part.upper), {f"app/{name}": text})
    found = list(find_test_settings(LayeredChanges((part,)), "/app"))
    assert found == [f"/app/{name}"] * is_found
