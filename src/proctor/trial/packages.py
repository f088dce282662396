"""Packages that an agent installed, and installing the same ones again in a clean room.

Only names and versions are taken from what the agent left: the packages themselves come from where
the image's own package manager gets them, so that nobody can bring a file in as one. A project in
the working directory that pip installed is not fetched: its modules are linked where pip put them,
without the project's metadata, and so without plug-ins, scripts or code that Python runs at start.
"""

import json
import posixpath
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

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
_LOCAL = re.compile(
    r"(?P<site>/.*/lib/python3\.\d+/(?:site|dist)-packages)/[^/]+\.dist-info/direct_url\.json"
)
"""What pip leaves of a package that came from no index."""
_PATIENCE_SEC = 900


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages by name and version."""

    debian: tuple[str, ...] = ()
    """name=version, for apt-get."""
    python: tuple[tuple[str, str, str], ...] = ()
    """(prefix, python3.12, name==version), for the pip of that Python."""
    modules: tuple[tuple[str, str], ...] = ()
    """(site-packages, directory of the work), to be linked there."""

    @property
    def names(self) -> tuple[str, ...]:
        """For people."""
        python = (package for _, _, package in self.python)
        return (*self.debian, *python, *(directory for _, directory in self.modules))


async def find_packages(
    changes: Sequence[Change], changed: Environment, pristine: Environment, workdir: str
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
    modules = await _find_modules(changes, changed, pristine, workdir)
    return Packages(debian[:_MOST], tuple(_find_python(changes))[:_MOST], tuple(modules)[:_MOST])


async def _load_status(environment: Environment) -> dict[str, str]:
    return dict(_parse_status(await _load(environment, _STATUS)))


async def _load(environment: Environment, path: str) -> str:
    with tempfile.TemporaryDirectory(prefix="proctor-packages-") as place:
        target = Path(place, "file")
        await environment.download_file(path, target)
        return read_small(str(target), _LARGEST).decode(errors="replace")


def _parse_status(text: str) -> Iterator[tuple[str, str]]:
    """Names and versions of the installed packages in a list of dpkg's."""
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        name, version = fields.get("Package", ""), fields.get("Version", "")
        is_usable = _NAME.fullmatch(name) and _VERSION.fullmatch(version)
        if is_usable and fields.get("Status") == _INSTALLED:
            yield name, version


async def _find_modules(
    changes: Sequence[Change], changed: Environment, pristine: Environment, workdir: str
) -> list[tuple[str, str]]:
    """Modules of installed projects in the working directory, as far as the image has them.

    Tools of the tests try to import many a name, and would load what the agent had given that name.
    """
    made = {each.path for each in changes if each.how != "changed"}
    found = []
    for change in changes:
        installed = _LOCAL.fullmatch(change.path)
        if installed is None or change.place is not Place.SYSTEM or change.how != "created":
            continue
        project = _parse_origin(await _load(changed, change.path))
        if project is None or workdir == "/" or not f"{project}/".startswith(f"{workdir}/"):
            continue
        for directory in await _list_modules(pristine, project):
            is_work = f"{directory}/".startswith(f"{workdir}/") and directory not in made
            if is_work and posixpath.basename(directory).isidentifier():
                found.append((installed["site"], directory))
    return found


async def _list_modules(environment: Environment, project: str) -> Iterator[str]:
    """Directories of a project's modules, links resolved."""
    places = " ".join(f"{shlex.quote(project)}/{one}__init__.py" for one in ("*/", "src/*/"))
    # No name can end a line: \1 stands for its own line ends.
    command = f"realpath -ez -- {places} 2>/dev/null | tr '\\n\\0' '\\1\\n'"
    listed = await environment.exec(command, timeout_sec=_PATIENCE_SEC, user="root")
    return map(posixpath.dirname, (listed.stdout or "").split("\n"))


def _parse_origin(text: str) -> str | None:
    """The directory that a package was installed from."""
    try:
        found: Any = json.loads(text)
        url = urlsplit(found["url"])
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None
    return posixpath.normpath(unquote(url.path)) if url.scheme == "file" else None


def _find_python(changes: Sequence[Change]) -> Iterator[tuple[str, str, str]]:
    local = {posixpath.dirname(each.path) for each in changes if _LOCAL.fullmatch(each.path)}
    for change in changes:
        # A name that came from a directory may be anybody's in an index.
        if posixpath.dirname(change.path) in local:
            continue
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
    for site, directory in packages.modules:
        # It fails where the image has such a module already.
        yield f"mkdir -p {shlex.quote(site)} && ln -s {shlex.quote(directory)} {shlex.quote(site)}/"
