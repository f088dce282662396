"""Find packages that an agent installed or removed, and repeat that in a clean room.

Only names and versions are taken from what the agent left. The packages come from the sources of
the image's own package manager, so no file of the agent's can pose as one. The agent's work is
present while package managers run as root, so they start outside of it, load nothing from it, and
use no cache. A project in the working directory that pip installed is not fetched: its modules are
linked where pip put them, without the project's metadata and hence without plug-ins, scripts or
code that Python runs at start.
"""

import json
import posixpath
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from proctor.files import read_small
from proctor.trial.changes import Change, Place
from proctor.trial.environment import Environment

_STATUS = "/var/lib/dpkg/status"
_LARGEST = 64 << 20
_MOST = 2000
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*(:[a-z0-9-]+)?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:-]*")
_INSTALLED = "install ok installed"
_PYTHON = re.compile(
    r"(?P<prefix>/.*)/lib/(?P<python>python3\.\d+)/(?:site|dist)-packages/"
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[A-Za-z0-9][A-Za-z0-9.+!]*)\.dist-info"
)
# Left by pip for a package that did not come from an index.
_LOCAL = re.compile(
    r"(?P<site>/.*/lib/python3\.\d+/(?:site|dist)-packages)/[^/]+\.dist-info/direct_url\.json"
)
_PATIENCE_SEC = 900
# Working directory of package managers: Python and uv read files of the directory they start in.
_OUTSIDE = "/usr"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_APT = """\
# A package in apt's own cache is installed if it has the right size, whatever is in it.
cache=$(mktemp -d)
export DEBIAN_FRONTEND=noninteractive
apt-get -o Dir::Cache="$cache" update -qq
install() {
    [ $# = 0 ] || apt-get -o Dir::Cache="$cache" install -y -qq --no-install-recommends \
        --allow-downgrades "$@" </dev/null && printf '%s\\n' "$@"
}
set -- WANTED
install "$@" || {
    for one; do
        shift
        apt-cache -o Dir::Cache="$cache" show "${one%-}" >/dev/null 2>&1 && set -- "$@" "$one"
    done
    install "$@"
}
"""
_PIP = """\
python=$(command -v {program} {python} | head -n 1)
export PYTHONUSERBASE={userbase} PIP_BREAK_SYSTEM_PACKAGES=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1
# Isolated: else Python would load modules from PYTHONPATH and from the user's own packages.
if "$python" -I -m pip --version >/dev/null 2>&1; then
    run() {{ "$python" -I -m pip install -q --no-deps {user} "$@"; }}
elif command -v uv >/dev/null; then
    run() {{ uv pip install -q --no-deps --no-cache --break-system-packages -p "$python" "$@"; }}
else
    run() {{ python3 -I -m pip --python "$python" install -q --no-deps "$@"; }}
fi
install() {{ run "$@" </dev/null && printf '%s\\n' "$@"; }}
set -- {wanted}
install "$@" || for one; do install "$one"; done
"""


class Packages(msgspec.Struct, frozen=True):
    """Packages by name and version."""

    debian: tuple[str, ...] = ()
    """Arguments for apt-get: name=version, or name- for a removed package."""
    python: tuple[tuple[str, str, str], ...] = ()
    """(prefix, python3.12, name==version), for the pip of that Python."""
    modules: tuple[tuple[str, str], ...] = ()
    """Pairs of site-packages and a module directory in the work, to be linked there."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names and versions, for messages."""
        python = (package for _, _, package in self.python)
        return (*self.debian, *python, *(directory for _, directory in self.modules))


async def find_packages(
    changes: Sequence[Change], changed: Environment, pristine: Environment, workdir: str
) -> Packages:
    """Compare the agent's packages with those of an environment that has the image's."""
    debian: tuple[str, ...] = ()
    if any(each.path == _STATUS for each in changes):
        before, now = await _load_status(pristine), await _load_status(changed)
        new = (f"{name}={now[name]}" for name in sorted(now) if before.get(name) != now[name])
        debian = (*new, *(f"{name}-" for name in sorted(before) if name not in now))
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
    """Parse names and versions of installed packages from dpkg's status file."""
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        name, version = fields.get("Package", ""), fields.get("Version", "")
        if fields.get("Multi-Arch") == "same":
            # Such a package can be installed for several architectures at once.
            name = f"{name}:{fields.get('Architecture', '')}"
        is_usable = _NAME.fullmatch(name) and _VERSION.fullmatch(version)
        if is_usable and fields.get("Status") == _INSTALLED:
            yield name, version


async def _find_modules(
    changes: Sequence[Change], changed: Environment, pristine: Environment, workdir: str
) -> list[tuple[str, str]]:
    """Return modules of installed projects in the working directory that the image also has.

    Test tools try to import many optional modules, and would load one that the agent had given such
    a name.
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
        places = " ".join(f"{shlex.quote(project)}/{one}__init__.py" for one in ("*/", "src/*/"))
        # NUL-terminated names become lines, and a newline inside a name becomes \1.
        command = f"realpath -ez -- {places} 2>/dev/null | tr '\\n\\0' '\\1\\n'"
        listed = await pristine.exec(command, timeout_sec=_PATIENCE_SEC, user="root")
        for directory in map(posixpath.dirname, (listed.stdout or "").split("\n")):
            is_work = f"{directory}/".startswith(f"{workdir}/") and directory not in made
            if is_work and posixpath.basename(directory).isidentifier():
                found.append((installed["site"], directory))
    return found


def _parse_origin(text: str) -> str | None:
    """Return the directory that a package was installed from."""
    try:
        found: Any = json.loads(text)
        url = urlsplit(found["url"])
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None
    return posixpath.normpath(unquote(url.path)) if url.scheme == "file" else None


def _find_python(changes: Sequence[Change]) -> Iterator[tuple[str, str, str]]:
    """Packages from an index, for each Python in which the agent changed nothing else."""
    created = {
        each.path for each in changes if each.place is Place.SYSTEM and each.how == "created"
    }
    work = [each.path for each in changes if each.place is not Place.SYSTEM]
    is_changed: dict[str, bool] = {}
    for path in sorted(created):
        directory, _, name = path.rpartition("/")
        found = _PYTHON.fullmatch(directory) if name == "METADATA" else None
        # pip writes this file for packages installed from a directory, an archive or a repository.
        if found is None or f"{directory}/direct_url.json" in created:
            continue
        prefix = found["prefix"]
        if prefix not in is_changed:
            decisive = {
                prefix,
                *(f"{prefix}/{name}" for name in ("bin", "lib", "pyvenv.cfg", "pip.conf")),
            }
            python = f"{prefix}/bin/python"
            is_changed[prefix] = any(path in decisive or path.startswith(python) for path in work)
        if not is_changed[prefix]:
            yield prefix, found["python"], f"{found['name']}=={found['version']}"


async def install_packages(environment: Environment, packages: Packages) -> tuple[str, ...]:
    """Install packages as root with the environment's package managers; return those installed.

    Raises:
        RuntimeError: none could be installed.
    """
    installed: list[str] = []
    last = ""
    for script in _list_scripts(packages):
        done = await environment.exec(
            script, _OUTSIDE, {"PATH": _PATH}, timeout_sec=_PATIENCE_SEC, user="root"
        )
        lines = (done.stdout or "").splitlines()
        installed += [line for line in lines if line in packages.names]
        last = next((line for line in reversed(lines) if line.strip()), last)
    if not installed:
        raise RuntimeError(f"packages could not be installed again: {last[:300]}")
    return tuple(dict.fromkeys(installed))


def _list_scripts(packages: Packages) -> Iterator[str]:
    if packages.debian:
        yield _APT.replace("WANTED", shlex.join(packages.debian))
    pythons = dict.fromkeys((prefix, python) for prefix, python, _ in packages.python)
    for prefix, python in pythons:
        wanted = [name for *of, name in packages.python if tuple(of) == (prefix, python)]
        yield _PIP.format(
            program=shlex.quote(f"{prefix}/bin/{python}"),
            python=python,
            userbase=shlex.quote(prefix),
            user="--user" if prefix.endswith("/.local") else "",
            wanted=shlex.join(wanted),
        )
    for site, directory in packages.modules:
        # Fails if the image already has such a module.
        words = shlex.quote(site), shlex.quote(directory)
        yield f"mkdir -p {words[0]} && ln -s {words[1]} {words[0]}/ && printf '%s\\n' {words[1]}"
