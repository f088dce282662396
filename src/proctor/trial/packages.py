"""Packages that an agent installed, and installing the same ones again in a clean room.

Only names and versions are taken from what the agent left: the packages themselves come from where
the image's own package manager gets them, so that nobody can bring a file in as one.
"""

import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.files import read_small
from proctor.trial.changes import Change, Place
from proctor.trial.environment import Environment

_STATUS = "/var/lib/dpkg/status"
_LARGEST = 64 << 20
_MOST = 2000
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:-]*")
_INSTALLED = "install ok installed"
_PYTHON = re.compile(
    r"(?P<prefix>/.*)/lib/(?P<python>python3\.\d+)/(?:site|dist)-packages/"
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[A-Za-z0-9][A-Za-z0-9.+!]*)\.dist-info/METADATA"
)
_PATIENCE_SEC = 900


class Packages(msgspec.Struct, frozen=True):
    """Packages by name and version."""

    debian: tuple[str, ...] = ()
    """name=version, for apt-get."""
    python: tuple[tuple[str, str, str], ...] = ()
    """(prefix, python3.12, name==version), for the pip of that Python."""

    @property
    def names(self) -> tuple[str, ...]:
        """For people."""
        return (*self.debian, *(package for _, _, package in self.python))


async def find_packages(
    changes: Sequence[Change], changed: Environment, pristine: Environment
) -> Packages:
    """What the agent installed in an environment, beside one that has the image's packages.

    Raises:
        Exception: an environment cannot give its list.
    """
    debian: tuple[str, ...] = ()
    if any(each.path == _STATUS for each in changes):
        before, now = await _load_status(pristine), await _load_status(changed)
        debian = tuple(
            f"{name}={now[name]}" for name in sorted(now) if before.get(name) != now[name]
        )
    return Packages(debian[:_MOST], tuple(_find_python(changes))[:_MOST])


async def _load_status(environment: Environment) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="proctor-packages-") as place:
        target = Path(place, "status")
        await environment.download_file(_STATUS, target)
        text = read_small(str(target), _LARGEST).decode(errors="replace")
    return dict(_parse_status(text))


def _parse_status(text: str) -> Iterator[tuple[str, str]]:
    """Names and versions of the installed packages in a list of dpkg's."""
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        name, version = fields.get("Package", ""), fields.get("Version", "")
        is_usable = _NAME.fullmatch(name) and _VERSION.fullmatch(version)
        if is_usable and fields.get("Status") == _INSTALLED:
            yield name, version


def _find_python(changes: Iterable[Change]) -> Iterator[tuple[str, str, str]]:
    for change in changes:
        if change.place is Place.SYSTEM and change.how == "created":
            found = _PYTHON.fullmatch(change.path)
            # Those below /usr/lib/python3 are Debian's.
            if found and found["prefix"] != "/usr":
                package = f"{found['name']}=={found['version']}"
                yield found["prefix"], found["python"], package


async def install_packages(environment: Environment, packages: Packages) -> None:
    """Install packages as root, with the environment's own package managers.

    Raises:
        RuntimeError: they cannot be installed there.
    """
    for command in _list_commands(packages):
        done = await environment.exec(command, timeout_sec=_PATIENCE_SEC, user="root")
        if done.return_code != 0:
            last = (done.stdout or "").strip().rpartition("\n")[2]
            raise RuntimeError(f"packages could not be installed again: {last[:300]}")


def _list_commands(packages: Packages) -> Iterator[str]:
    if packages.debian:
        words = shlex.join(packages.debian)
        yield (
            "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -y -qq "
            f"--no-install-recommends --allow-downgrades {words} </dev/null"
        )
    pythons = dict.fromkeys((prefix, python) for prefix, python, _ in packages.python)
    for prefix, python in pythons:
        wanted = [name for *of, name in packages.python if tuple(of) == (prefix, python)]
        program = f"$(command -v {shlex.quote(f'{prefix}/bin/{python}')} {python} | head -n 1)"
        words = shlex.join(wanted)
        yield f"PIP_BREAK_SYSTEM_PACKAGES=1 {program} -m pip install -q --no-deps {words}"
