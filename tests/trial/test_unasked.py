"""What of an agent's work a clean room does without, though it is no part of the system."""

import pytest

from proctor.trial.changes import Change, Place, Surroundings, leave_out
from proctor.trial.unasked import find_merged, find_overwritten_links, find_unasked

PROVIDED = frozenset(
    {
        *("bin/grep", "bin/python3", "python/yaml", "include/assert.h", "include/sys/stat.h"),
        *("lib/libm", "perl/Test/More.pm", "node/lodash"),
    }
)
APP = Surroundings(workdir="/app", provided=PROVIDED, test_settings=("/app/pyproject.toml",))
ANSWER = "Write the answer into /app/answer.txt."


def made(path: str, kind: str = "file", **more: object) -> Change:
    fields: dict[str, object] = {"how": "created", "mode": "0644", **more}
    return Change(path=path, kind=kind, in_image=fields["how"] != "created", **fields)  # type: ignore[arg-type]


def unasked(*changes: Change, text: str = ANSWER, own: tuple[str, ...] = ()) -> list[str]:
    return find_unasked(changes, APP, own, text)


@pytest.mark.parametrize(
    "path",
    [
        "/app/yaml.py",
        "/app/json.so",
        "/app/own/json.py",
        "/app/src/usercustomize.py",
        "/root/json.py",
        "/app/include/assert.h",
        "/app/include/sys/stat.h",
        "/app/lib/libm.so.6",
        "/app/lib/Test/More.pm",
        "/app/own/conftest.py",
        "/app/.flake8",
        "/app/config.mk",
        "/app/Makefile.local",
        "/app/build/CTestCustom.cmake",
        "/app/x.egg-info",
        "/app/pyproject.toml",
        "/app/tests/__init__.py",
        "/app/__pycache__/x.cpython-312.pyc",
        "/tmp/x",  # noqa: S108 - of the environment
        "/var/cache/apt/archives/x.deb",
    ],
)
def test_files_that_tests_find_by_themselves_are_left_out(path: str) -> None:
    assert unasked(made(path), own=("/app/own",)) == [path]
    name = path.rpartition("/")[2]
    is_state = "__pycache__" in path
    assert unasked(made(path), text=f"Write {path}, add tests to {name}.") == [path] * is_state


@pytest.mark.parametrize(
    "path",
    [
        "/app/answer.txt",
        "/app/program.py",
        "/app/own/helper.h",
        "/app/own/lib/libown.so",
        "/app/.gitignore",
        "/app/own/.eslintrc",
        "/app/setup.py",
        "/app/Cargo.toml",
        "/app/own/lib/python3.12/site-packages/yaml.py",
        "/root/notes.txt",
        "/opt/new/x",
    ],
)
def test_ordinary_work_is_kept(path: str) -> None:
    assert unasked(made(path), own=("/app/own",)) == []


def test_a_directory_is_a_module_only_as_a_package_and_goes_with_what_is_in_it() -> None:
    package, file = made("/app/json", "directory"), made("/app/json/__init__.py")
    assert unasked(package, made("/app/json/data.txt")) == []
    assert unasked(package, file, text="Write json.") == ["/app/json", "/app/json/__init__.py"]
    assert unasked(package, file, text="Write the package json/.") == []


def test_a_module_within_a_package_of_the_agents_is_no_namesake() -> None:
    own = made("/app/own/__init__.py")
    assert unasked(own, made("/app/own/types.py"), own=("/app/own",)) == []


def test_a_program_is_a_namesake_unless_it_is_asked_for_or_of_a_virtual_environment() -> None:
    grep = made("/opt/x/bin/grep", mode="0755")
    assert unasked(grep) == ["/opt/x/bin/grep"]
    assert unasked(made("/opt/x/bin/grep")) == []
    assert unasked(grep, text="Build grep.") == []
    python = made("/app/env/bin/python3", "link", end="/usr/bin/python3")
    assert unasked(python) == ["/app/env/bin/python3"]
    assert unasked(made("/app/env/pyvenv.cfg"), python) == []


def test_a_link_is_kept_if_a_clean_room_has_what_it_leads_to() -> None:
    link = made("/app/link", "link", end="/app/file")
    assert unasked(link, made("/app/file")) == []
    assert unasked(made("/app/link", "link", end="/usr/share/x")) == []
    assert unasked(made("/app/link", "link")) == ["/app/link"]
    temporary = made("/app/link", "link", end="/tmp/a/b")  # noqa: S108 - of the environment
    place = made("/tmp/a", "directory")  # noqa: S108 - of the environment
    assert "/app/link" in unasked(temporary, place)
    system = made("/usr/local/x", place=Place.SYSTEM)
    assert unasked(made("/app/link", "link", end="/usr/local/x"), system) == ["/app/link"]


def test_a_link_to_what_the_tests_write_is_found_afterwards() -> None:
    changes = [made("/app/link", "link", end="/app/file"), made("/app/file")]
    assert find_overwritten_links(changes, [made("/app/file", how="changed")]) == ["/app/link"]
    assert find_overwritten_links(changes, [made("/app/other")]) == []


@pytest.mark.parametrize(
    "name", ["config", "info/attributes", "hooks/post-commit", "refs/replace/a"]
)
def test_settings_of_the_images_repository_are_left_out(name: str) -> None:
    path = f"/app/.git/{name}"
    assert unasked(made(path, how="changed")) == [path]
    assert unasked(made(path), own=("/app/.git",)) == []
    assert unasked(made(path), text="Configure a remote.") == []
    assert unasked(made("/app/.git/objects/aa/bb"), made("/app/.git/index", how="changed")) == []


def test_deletions_and_inputs_are_undone_unless_the_text_speaks_of_such() -> None:
    gone, data = made("/app/case.txt", how="deleted"), made("/app/in.csv", how="changed")
    assert unasked(gone, data, text="Count them.") == ["/app/case.txt", "/app/in.csv"]
    assert unasked(gone, data, text="Remove the cases.") == []
    assert unasked(data, text="Sort the rows of in.csv.") == []
    mentioned = made("/app/in.json", how="changed")
    assert unasked(mentioned, text="Count the entries of in.json.") == ["/app/in.json"]
    assert unasked(mentioned, data, text="Write `/app/in.json` and `/app/in.csv`.") == []
    assert unasked(data, text="The count goes into `/app/in.csv`.") == []
    assert unasked(mentioned, made("/app/main.c", how="changed"), text="Count them.") == []
    assert unasked(made("/app/x.db-wal", how="deleted"), text="Count them.") == []


def test_a_directory_in_place_of_the_images_has_what_both_have() -> None:
    changes = [made("/app/cases", "directory", how="replaced"), made("/app/cases/new.txt")]
    assert find_merged(changes, APP, "Count them.") == ["/app/cases"]
    assert find_merged(changes, APP, "Clean the cases.") == []
    left_out = leave_out(changes, (), ["/app/cases"])
    assert left_out.paths == frozenset()
    assert left_out.plain == {"/app/cases"}
