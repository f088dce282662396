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
    """An environment that has a list of packages, and keeps what it is told to run."""

    def __init__(self, *packages: tuple[str, str, str], code: int = 0) -> None:
        self.text = "".join(
            STATUS.format(name=name, version=version, status=status)
            for name, version, status in packages
        )
        self.code = code
        self.commands: list[str] = []

    async def download_file(self, source_path: str, target_path: Path) -> None:
        assert source_path == "/var/lib/dpkg/status"
        target_path.write_text(self.text)

    async def exec(self, command: str, **_: object) -> ExecResult:
        self.commands.append(command)
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


def test_packages_of_pip_are_found_where_they_lie() -> None:
    paths = (
        "/usr/local/lib/python3.12/site-packages/requests-2.32.0.dist-info/METADATA",
        "/opt/env/lib/python3.11/site-packages/foo_bar-1.0.dist-info/METADATA",
        "/usr/lib/python3/dist-packages/debians-1.dist-info/METADATA",
        "/usr/local/lib/python3.12/site-packages/bad name-1.dist-info/METADATA",
        "/usr/local/lib/python3.12/site-packages/requests/__init__.py",
    )
    assert find(Listed(OLD), *paths).python == (
        ("/usr/local", "python3.12", "requests==2.32.0"),
        ("/opt/env", "python3.11", "foo_bar==1.0"),
    )


def test_they_are_installed_by_the_images_own_package_managers() -> None:
    packages = Packages(("hello=1",), (("/usr/local", "python3.12", "x==1"),))
    assert packages.names == ("hello=1", "x==1")
    environment: Any = Listed()
    asyncio.run(install_packages(environment, packages))
    apt, pip = environment.commands
    assert "apt-get install" in apt
    assert apt.endswith("hello=1 </dev/null")
    assert pip.endswith("-m pip install -q --no-deps x==1")


def test_what_cannot_be_installed_again_is_said() -> None:
    environment: Any = Listed(code=100)
    with pytest.raises(RuntimeError, match="could not be installed again: E: no such package"):
        asyncio.run(install_packages(environment, Packages(("hello=1",))))
