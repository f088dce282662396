"""What lies at the top of a container's root, and how a room is given the same.

A room is made of binds of these entries, one by one, on an image that has nothing but their links:
what the agent made, changed and deleted at the top is there, changed and gone in the room as well.
A directory that holds one of the room's own is not bound but taken apart in the same way: whoever
removes a directory takes what is mounted on it away, also from others.

The container must be paused meanwhile: an entry that became a link after it was looked at would
lead to a place of the host.
"""

import csv
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.environments.docker.containers import words_of_labels
from proctor.environments.docker.engine import lock_of, name_choice
from proctor.environments.docker.program import run_docker
from proctor.environments.sandbox.locks import locked_soon
from proctor.errors import DockerError

_OWN = frozenset({"proc", "sys", "dev", ".dockerenv"})
"""What every container has of its own."""
_PLACE = "/proctor-root"
_END = "end"
_ROOM_IMAGE = "proctor-room"

# Names are a stranger's: each ends in NUL. A directory to be taken apart is no link. The last word
# says how many there were: of what a container prints, docker may lose a part.
_LOOK = f"""cd {_PLACE} || exit 1
n=0
look() {{
  for each in "$1"* "$1".[!.]* "$1"..?*; do
    if [ -L "$each" ]; then printf 'l%s\\0%s\\0' "$each" "$(readlink "$each")"
    elif [ -d "$each" ] || [ -f "$each" ]; then printf 'b%s\\0' "$each"
    else continue; fi
    n=$((n+1))
  done
}}
look ''
for apart in "$@"; do [ -L "$apart" ] || look "$apart/"; done
printf '{_END}%d\\0' $n"""
_TRIES = 5

_MADE: set[str] = set()
"""Images for rooms that are known to be there, each with its engine."""


@dataclass(frozen=True, slots=True)
class TopLevel:
    """The entries at the top of a root."""

    bound: tuple[str, ...]
    """Names of directories and plain files."""
    links: Mapping[str, str]
    """Links, and what they say."""


def find_apart(fresh: Sequence[str]) -> tuple[str, ...]:
    """The top-level directories that hold a fresh one, and so are taken apart.

    Raises:
        DockerError: a fresh one lies deeper.
    """
    depths = {path: path.strip("/").split("/") for path in fresh}
    for path, parts in depths.items():
        if len(parts) > 2:
            raise DockerError(f"{path}: a room has fresh directories at most two levels deep")
    return tuple(dict.fromkeys(parts[0] for parts in depths.values() if len(parts) == 2))


def list_here(merged: str, apart: Sequence[str]) -> TopLevel:
    """What lies at the top of a root that is on this machine, and in directories there."""
    bound, links = [], {}
    for directory in ("", *apart):
        if Path(merged, directory).is_symlink() or not Path(merged, directory).is_dir():
            continue
        for path in sorted(Path(merged, directory).iterdir()):
            name = str(path.relative_to(merged))
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                links[name] = os.readlink(path)  # noqa: PTH115 - the text as it is
            elif stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                bound.append(name)
    return TopLevel(tuple(bound), links)


async def list_there(merged: str, apart: Sequence[str], image: str, shell: str) -> TopLevel:
    """The same, looked at by a container of the image: nothing of the agent's is run in it.

    Raises:
        DockerError: it could not be started, or nothing is heard of it.
    """
    for _ in range(_TRIES):
        told = await run_docker(
            *("run", "--rm", *words_of_labels(), "--pull", "never", "--network", "none"),
            *("--security-opt", "no-new-privileges", "--cap-drop", "ALL", "--user", "0"),
            *("--mount", f"type=bind,source={merged},target={_PLACE},readonly"),
            *("--entrypoint", shell, image, "-c", _LOOK, shell, *apart),
        )
        *fields, last, _ = ["", *told.out.split("\0")]
        top = _parse(fields)
        # A container that ends at once may end before docker listens to it.
        if last == f"{_END}{len(top.bound) + len(top.links)}":
            return top
    raise DockerError(f"{merged}: what lies there cannot be listed by a container")


def _parse(fields: Sequence[str]) -> TopLevel:
    bound, links = [], {}
    waiting = iter(fields)
    for field in waiting:
        if field.startswith("l"):
            links[field[1:]] = next(waiting, "")
        elif field.startswith("b"):
            bound.append(field[1:])
    return TopLevel(tuple(bound), links)


def words_of_binds(merged: str, top: TopLevel, fresh: Sequence[str]) -> Iterator[str]:
    """Options that bind all of it, but for what is fresh in the room."""
    left_out = _OWN | {path.strip("/") for path in fresh} | set(find_apart(fresh))
    for name in top.bound:
        if name not in left_out:
            yield from words_of_bind(f"{merged}/{name}", f"/{name}")


def words_of_bind(source: str, target: str) -> list[str]:
    """An option that binds a path of the engine's machine; names may hold anything."""
    # docker reads a mount's fields as a line of CSV.
    line = io.StringIO()
    csv.writer(line).writerow(["type=bind", f"source={source}", f"target={target}"])
    return ["--mount", line.getvalue().removesuffix("\r\n")]


async def prepare_room_image(top: TopLevel, fresh: Sequence[str]) -> str:
    """The image that rooms with these links are started from; made once an engine.

    Raises:
        DockerError: it cannot be made.
    """
    own = _OWN | {path.strip("/") for path in fresh} | set(find_apart(fresh))
    links = {name: to for name, to in top.links.items() if name not in own}
    told = "\n".join(f"{name}\0{to}" for name, to in sorted(links.items()))
    name = f"{_ROOM_IMAGE}:{sha256_hex(told.encode(errors='surrogateescape'))[:24]}"
    key = f"{name_choice()}\n{name}"
    if key not in _MADE:
        async with locked_soon(lock_of(name)):
            if (await run_docker("image", "inspect", name, is_checked=False)).code != 0:
                await run_docker("import", "-", name, data=_pack(links))
        _MADE.add(key)
    return name


def _pack(links: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        # An image without a single entry is refused by some engines.
        top = tarfile.TarInfo("proc")
        top.type, top.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(top)
        for name, to in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, to, 0o777
            tar.addfile(member)
    return made.getvalue()
