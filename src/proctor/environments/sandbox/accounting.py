"""Everything that was written in a sandbox, as a trial lists it, and how programs find files there.

For sandboxes, and for containers whose layers lie on this machine.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence

from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.changes import LayeredChanges
from proctor.environments.sandbox.command import PATH
from proctor.environments.sandbox.mapped import run_mapped
from proctor.environments.sandbox.walk import Limits, Written
from proctor.trial.changes import Change, Phase, Surroundings
from proctor.trial.environment import SeenFile

_USERS = "/etc/passwd"
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
    written, is_cut = await run_mapped("walk", layers, known, limits)
    return [_change_of(Written(*each)) for each in written], is_cut


def _change_of(written: Written) -> Change:
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
        xattrs=dict(written.xattrs),
        in_image=written.in_image,
        mark=written.mark,
    )


def changes_in_memory(
    files: Sequence[SeenFile], known: Mapping[str, str], devices: str
) -> Iterator[Change]:
    """What was put into the memory file systems below /dev."""
    for file in files:
        if file.size is None and not file.path.startswith(f"{devices}/"):
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
    search = [*_split(env.get("PATH", PATH)), *_split(env.get("LD_LIBRARY_PATH", ""))]
    texts = [changes.read_in_image(_USERS), changes.read_now(_USERS)]
    named = [home for text in texts for home in _list_homes(text)]
    homes = dict.fromkeys(("/root", env.get("HOME", "/root"), *named[:_MOST_HOMES]))
    return Surroundings(
        workdir=changes.resolve(workdir),
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
