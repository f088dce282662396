"""Which part of an environment a changed path belongs to, and what a clean room leaves out."""

import pytest

from proctor.trial.changes import (
    Change,
    Classifier,
    Place,
    Surroundings,
    find_named,
    find_test_imports,
    leave_out,
)

APP = Surroundings(workdir="/app", search_path=("/usr/bin", "/bin", "/app/venv/bin"))
WORK, HOME, SYSTEM = Place.WORK, Place.HOME, Place.SYSTEM


def change(path: str, how: str = "created", kind: str = "file") -> Change:
    return Change(path=path, how=how, kind=kind, in_image=how != "created")


@pytest.mark.parametrize(
    ("path", "how", "place"),
    [
        ("/app/x", "created", WORK),
        ("/app/x", "deleted", WORK),
        ("/app/.git/config", "changed", WORK),
        ("/app/venv/bin/python", "changed", SYSTEM),
        ("/app/lib/python3/site-packages/pytest/__init__.py", "changed", SYSTEM),
        ("/app/lib/python3/site-packages/new.py", "created", SYSTEM),
        ("/etc/profile", "changed", SYSTEM),
        ("/etc/new", "created", SYSTEM),
        ("/usr/local/bin/tool", "created", SYSTEM),
        ("/lib64/ld.so", "changed", SYSTEM),
        ("/var/lib/dpkg/status", "changed", SYSTEM),
        ("/var/spool/cron/root", "created", SYSTEM),
        ("/var/www/index.html", "created", WORK),
        ("/var/www/index.html", "changed", SYSTEM),
        ("/opt/venv/lib/x.py", "changed", SYSTEM),
        ("/opt/new/x", "created", WORK),
        ("/conftest.py", "created", SYSTEM),
        ("/data/x", "created", WORK),
        ("/root/notes", "created", HOME),
        ("/root/.bashrc", "created", SYSTEM),
        ("/root/.start/lib/python3/site-packages/x.py", "created", SYSTEM),
        ("/root", "replaced", SYSTEM),
        ("/root", "changed", HOME),
        ("/tmp/x", "created", HOME),  # noqa: S108 - of the environment
        ("/dev/shm/x", "created", HOME),  # noqa: S108 - of the environment
        ("/logs/agent/x", "created", WORK),
    ],
)
def test_a_path_belongs_to_a_part(path: str, how: str, place: Place) -> None:
    assert Classifier(APP).classify(change(path, how)) is place


@pytest.mark.parametrize("workdir", ["/", "/usr", "/etc", "/root"])
def test_a_wide_working_directory_makes_no_system_file_harmless(workdir: str) -> None:
    classify = Classifier(Surroundings(workdir=workdir)).classify
    for path in ("/etc/profile", "/usr/bin/grep", "/root/.bashrc", "/conftest.py"):
        assert classify(change(path, "changed")) is SYSTEM
    assert classify(change("/root/x")) is (WORK if workdir == "/root" else HOME)


def test_homes_are_those_that_passwd_names() -> None:
    around = Surroundings(workdir="/app", homes=("/root", "/app/home", "/"))
    classify = Classifier(around).classify
    assert classify(change("/app/home/.bashrc")) is SYSTEM
    assert classify(change("/app/.env")) is WORK


def test_what_the_instruction_names_is_the_work() -> None:
    text = (
        "Edit /etc/nginx/nginx.conf and write `/usr/local/bin/tool`. Data is in /data/set, see "
        "https://example.org/etc/x. Use /usr/bin/python3 and ~/.ssh/config, not /etc."
    )
    named = find_named(text)
    assert named == {
        *("/etc/nginx/nginx.conf", "/usr/local/bin/tool", "/data/set", "/usr/bin/python3"),
        "/root/.ssh/config",
    }
    classify = Classifier(APP, named).classify
    assert classify(change("/etc/nginx/nginx.conf", "changed")) is WORK
    assert classify(change("/usr/local/bin/tool")) is WORK
    assert classify(change("/data/set/1.csv", "changed")) is WORK
    assert classify(change("/root/.ssh/config")) is WORK
    # It came with the image: to be named does not make it the agent's.
    assert classify(change("/usr/bin/python3", "changed")) is SYSTEM
    assert classify(change("/etc/passwd", "changed")) is SYSTEM


def test_a_program_that_the_instruction_asks_for_is_the_work() -> None:
    around = Surroundings(workdir="/app", search_path=("/usr/bin",), shadowing=("python3",))
    classify = Classifier(around, text="Build sqlite3 for python3.").classify
    assert classify(change("/usr/bin/sqlite3")) is WORK
    assert classify(change("/usr/bin/sqlite3", "changed")) is SYSTEM
    assert classify(change("/usr/bin/python3")) is SYSTEM
    assert classify(change("/usr/bin/grep")) is SYSTEM


def test_what_an_agent_made_is_no_package_of_the_image() -> None:
    made = frozenset({"/app/env/lib/python3/site-packages", "/app/env/bin"})
    around = Surroundings(workdir="/app", search_path=("/app/env/bin",))
    classify = Classifier(around, made=made).classify
    assert classify(change("/app/env/lib/python3/site-packages/numpy/x.py")) is WORK
    assert classify(change("/app/env/bin/python")) is WORK


def test_files_that_tests_load_by_themselves() -> None:
    made = {"/app/tests", "/app/json"}
    paths = {
        "/app/conftest.py": True,
        "/app/tests/conftest.py": False,
        "/app/json.py": True,
        "/app/mine.py": False,
        "/app/src/json.py": False,
        "/app/x.pth": True,
        "/app/.git/hooks/pre-commit": True,
        "/app/.git/hooks/pre-commit.sample": False,
        "/app/Makefile": True,
    }
    changes = [change(path) for path in paths]
    loaded = find_test_imports(changes, APP, made)
    assert loaded == [path for path, is_loaded in paths.items() if is_loaded]
    asked = find_test_imports(changes, APP, made, "Write a Makefile and a git hook.")
    assert asked == ["/app/conftest.py", "/app/json.py", "/app/x.pth"]


def test_a_name_that_would_be_a_pattern_is_a_name() -> None:
    changes = [change("/app/(?"), change("/app/[?"), change("/app/json.py")]
    assert find_test_imports(changes, APP, (), "Is it (? or [?") == ["/app/json.py"]


def test_a_clean_room_leaves_out_the_system_and_keeps_the_way_to_the_work() -> None:
    changes = [
        Change(path=path, how=how, kind=kind, place=place)
        for path, how, kind, place in (
            ("/usr/local/x", "created", "directory", SYSTEM),
            ("/usr/local/x/named", "created", "file", WORK),
            ("/usr/local/x/other", "created", "file", SYSTEM),
            ("/bin", "replaced", "directory", SYSTEM),
            ("/bin/tool", "created", "file", WORK),
            ("/app/y", "created", "file", WORK),
        )
    ]
    left_out = leave_out(changes, ["/app/y"])
    assert left_out.paths == {"/usr/local/x/other", "/bin", "/app/y"}
    assert left_out.plain == {"/usr/local/x"}


@pytest.mark.parametrize(
    ("text", "path", "place"),
    [
        ("Packages are in /usr/local/lib/python3.11/dist-packages.", "yaml.py", SYSTEM),
        ("Write /usr/local/lib/python3.11/dist-packages/own.py.", "own.py", WORK),
        ("Write /usr/local/lib/python3.11/dist-packages/own.py.", "other.py", SYSTEM),
    ],
)
def test_a_directory_of_the_images_is_named_as_a_place(text: str, path: str, place: Place) -> None:
    classifier = Classifier(APP, find_named(text))
    changed = change(f"/usr/local/lib/python3.11/dist-packages/{path}")
    assert classifier.classify(changed) is place


def test_what_is_below_a_named_directory_that_the_agent_made_is_the_work() -> None:
    made = frozenset({"/usr/local/lib/tool"})
    named = find_named("Install it into /usr/local/lib/tool.")
    assert Classifier(APP, named, made).classify(change("/usr/local/lib/tool/x")) is WORK
    assert Classifier(APP, named).classify(change("/usr/local/lib/tool/x")) is SYSTEM


def test_a_named_home_has_dotfiles_of_the_system_still() -> None:
    around = Surroundings(workdir="/app", homes=("/root", "/home/dev"))
    classify = Classifier(around, find_named("You are in /home/dev.")).classify
    assert classify(change("/home/dev/.bashrc")) is SYSTEM
    assert classify(change("/home/dev/notes")) is HOME


def test_a_text_that_mentions_what_tests_are_run_by_does_not_ask_for_it() -> None:
    around = Surroundings(workdir="/app", search_path=("/usr/local/bin",))
    classify = Classifier(around, text="Use uvx and frob.").classify
    assert classify(change("/usr/local/bin/uvx")) is SYSTEM
    assert classify(change("/usr/local/bin/frob")) is WORK


def test_environments_of_the_image_in_the_working_directory_are_system() -> None:
    around = Surroundings(workdir="/app", environments=("/app/venv/pyvenv.cfg",))
    assert Classifier(around).classify(change("/app/venv/pyvenv.cfg", "changed")) is SYSTEM
