"""Everything that was written in a sandbox, as a trial lists it, and how programs find files there.

For sandboxes, and for containers whose layers lie on this machine.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from proctor.environments.interior import DEVICES, MEMORY
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.changes import LayeredChanges
from proctor.environments.sandbox.command import PATH
from proctor.environments.sandbox.links import find_ends
from proctor.environments.sandbox.mapped import run_mapped
from proctor.environments.sandbox.provided import find_provided
from proctor.environments.sandbox.settings import find_test_settings
from proctor.environments.sandbox.walk import Limits, Written
from proctor.trial.changes import Change, Phase, Surroundings
from proctor.trial.environment import SeenFile

USERS = "/etc/passwd"
_MOST_HOMES = 100


async def list_changes(
    parts: Sequence[Part], known: Mapping[str, str], *, is_hashing: bool
) -> tuple[list[Change], bool]:
    """What was written in overlays.

    Raises:
        SandboxError: it cannot be listed.
    """
    layers = [(part.target, part.upper, part.lowers) for part in parts]
    limits = Limits(is_hashing=is_hashing)
    # What lies in memory is in no layer, and would be taken for deleted.
    on_disk = {path: mark for path, mark in known.items() if not path.startswith(f"{DEVICES}/")}
    written, is_cut = await run_mapped("walk", layers, on_disk, limits)
    entries = [Written(*each) for each in written]
    ends = find_ends(LayeredChanges(tuple(parts)), entries)
    return [_change_of(each, ends.get(each.path, "")) for each in entries], is_cut


def _change_of(written: Written, end: str) -> Change:
    is_gone = written.how == "deleted"
    return Change(
        path=written.path,
        how=written.how,
        kind=written.kind,
        when=Phase.SETUP if written.is_known else Phase.AGENT,
        mode="" if is_gone else f"{written.mode:04o}",
        uid=None if is_gone else written.uid,
        gid=None if is_gone else written.gid,
        size=written.size if written.kind == "file" and not is_gone else None,
        sha256=written.sha256,
        target=written.target,
        end=end,
        xattrs=dict(written.xattrs),
        in_image=written.in_image,
        mark=written.mark,
    )


def changes_in_memory(files: Sequence[SeenFile], known: Mapping[str, str]) -> Iterator[Change]:
    """What was put into the memory file systems below /dev, and what of it is gone."""
    seen = {file.path for file in files}
    for path, mark in known.items():
        if mark and path.startswith(f"{DEVICES}/") and path not in seen:
            yield Change(path=path, how="deleted", kind="file")
    for file in files:
        if file.size is None and not file.path.startswith(f"{MEMORY}/"):
            # A device or a link of every sandbox's /dev.
            continue
        mark = f"{file.size}-{file.sha256}"
        yield Change(
            path=file.path,
            how="created",
            kind="file" if file.size is not None else "link",
            when=Phase.SETUP if known.get(file.path) == mark else Phase.AGENT,
            size=file.size,
            sha256=file.sha256 or "",
            mark=mark,
        )


def find_surroundings(
    changes: LayeredChanges, env: Mapping[str, str], workdir: str
) -> Surroundings:
    """How programs with these variables find their files."""
    texts = [changes.read_in_image(USERS), changes.read_now(USERS)]
    around = surroundings_of(texts, env, changes.resolve(workdir))
    environments = tuple(_find_environments(changes, around.workdir))
    places = (f"{posixpath.dirname(one)}/bin" for one in environments)
    search = tuple(dict.fromkeys((*around.search_path, *places)))
    around = msgspec.structs.replace(around, search_path=search, environments=environments)
    shadowing = tuple(_find_shadowing(changes, around.search_path))
    return msgspec.structs.replace(
        around,
        shadowing=shadowing,
        provided=find_provided(
            changes, around.search_path, tuple(_split(env.get("NODE_PATH", "")))
        ),
        test_settings=tuple(find_test_settings(changes, around.workdir)),
    )


def _find_environments(changes: LayeredChanges, workdir: str) -> Iterator[str]:
    """The settings of Python environments that the image has in a directory."""
    if workdir == "/":
        return
    for name in changes.list_in_image(workdir):
        path = f"{workdir}/{name}/pyvenv.cfg"
        if changes.find_kind_in_image(path):
            yield path


def _find_shadowing(changes: LayeredChanges, search: Sequence[str]) -> Iterator[str]:
    places = list(dict.fromkeys(map(changes.resolve, search)))
    written = {name for place in places for name in changes.list_written(place)}
    for name in sorted(written):
        if any(changes.find_in_image(f"{place}/{name}") for place in places):
            yield name


def surroundings_of(users: Iterable[str], env: Mapping[str, str], workdir: str) -> Surroundings:
    """The same, where the text of each /etc/passwd is known, and where the working directory is."""
    search = [*_split(env.get("PATH", PATH)), *_split(env.get("LD_LIBRARY_PATH", ""))]
    named = [home for text in users for home in _list_homes(text)]
    homes = dict.fromkeys(
        ("/root", posixpath.normpath(env.get("HOME", "/root")), *named[:_MOST_HOMES])
    )
    return Surroundings(
        workdir=workdir,
        search_path=tuple(search),
        python_path=tuple(_split(env.get("PYTHONPATH", ""))),
        homes=tuple(home for home in homes if home.startswith("/")),
    )


def _split(value: str) -> list[str]:
    return [posixpath.normpath(place) for place in value.split(":") if place.startswith("/")]


def _list_homes(text: str) -> Iterator[str]:
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) > 5 and fields[5].startswith("/"):
            yield posixpath.normpath(fields[5])
