"""Packages that an agent installed are found by name and version, and nothing else of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proctor.trial.changes import Change, Place
from proctor.trial.environment import ExecResult
from proctor.trial.packages import Packages, find_packages, install_packages

STATUS = """Package: {name}
Status: {status}
Version: {version}

"""


class Listed:
    """An environment that has a list of packages, and where every command fails in the same way."""

    def __init__(self, *packages: tuple[str, str, str], code: int = 0) -> None:
        self.text = "".join(
            STATUS.format(name=name, version=version, status=status)
            for name, version, status in packages
        )
        self.code = code

    async def download_file(self, source_path: str, target_path: Path) -> None:
        assert source_path == "/var/lib/dpkg/status" or source_path.endswith("/direct_url.json")
        target_path.write_text(self.text)

    async def exec(self, command: str, *_: object, **__: object) -> ExecResult:
        return ExecResult("E: no such package\n", None, self.code)


INSTALLED = "install ok installed"
OLD = ("bash", "5.2-1", INSTALLED)


def system(path: str) -> Change:
    return Change(path=path, how="created", kind="file", place=Place.SYSTEM)


def find(changed: Listed, *paths: str) -> Packages:
    pristine: Any = Listed(OLD)
    environment: Any = changed
    changes = [system(path) for path in ("/var/lib/dpkg/status", *paths)]
    return asyncio.run(find_packages(changes, environment, pristine, "/app"))


def test_new_and_upgraded_packages_are_found() -> None:
    changed = Listed(
        ("bash", "5.2-2", INSTALLED),
        ("hello", "1:2.10-3+b1~x", INSTALLED),
        ("gone", "1", "deinstall ok config-files"),
        ("odd; rm -rf /", "1", INSTALLED),
        ("fine", "$(id)", INSTALLED),
    )
    assert find(changed).debian == ("bash=5.2-2", "hello=1:2.10-3+b1~x")
    assert find(Listed(OLD)) == Packages()
    assert find(Listed()).debian == ("bash-",)


def test_a_package_for_two_architectures_is_two_packages() -> None:
    one = STATUS.format(name="libx", version="1", status=INSTALLED).rstrip("\n")
    changed = Listed(OLD)
    for architecture in ("amd64", "i386"):
        changed.text += f"{one}\nMulti-Arch: same\nArchitecture: {architecture}\n\n"
    assert find(changed).debian == ("libx:amd64=1", "libx:i386=1")


def test_packages_of_pip_are_found_where_they_lie() -> None:
    paths = (
        "/usr/local/lib/python3.12/site-packages/requests-2.32.0.dist-info/METADATA",
        "/opt/env/lib/python3.11/site-packages/foo_bar-1.0.dist-info/METADATA",
        "/usr/lib/python3/dist-packages/debians-1.dist-info/METADATA",
        "/usr/local/lib/python3.12/site-packages/bad name-1.dist-info/METADATA",
        "/usr/local/lib/python3.12/site-packages/requests/__init__.py",
    )
    assert find(Listed(OLD), *paths).python == (
        ("/opt/env", "python3.11", "foo_bar==1.0"),
        ("/usr/local", "python3.12", "requests==2.32.0"),
    )


def test_what_did_not_come_from_an_index_is_left_out() -> None:
    place = "/usr/local/lib/python3.12/site-packages"
    paths = (f"{place}/own-1.dist-info/METADATA", f"{place}/own-1.dist-info/direct_url.json")
    assert find(Listed(OLD), *paths) == Packages()


def test_a_python_that_the_agent_changed_installs_nothing() -> None:
    package = "/app/env/lib/python3.12/site-packages/foo-1.dist-info/METADATA"
    for decisive in ("bin/python3", "bin/python3.12", "pyvenv.cfg", "pip.conf"):
        own = Change(path=f"/app/env/{decisive}", how="changed", kind="file", place=Place.WORK)
        unused: Any = Listed()
        found = asyncio.run(find_packages([system(package), own], unused, unused, "/app"))
        assert found == Packages()


def test_what_cannot_be_installed_again_is_said() -> None:
    environment: Any = Listed(code=100)
    with pytest.raises(RuntimeError, match="could not be installed again: E: no such package"):
        asyncio.run(install_packages(environment, Packages(("hello=1",))))
