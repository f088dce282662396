"""A child process that unpacks layers, with the right to write their files.

As root it has it already. For an unprivileged user it is root of a user namespace: files of other
users get subordinate ids where the user has some, and belong to root otherwise. One child unpacks
all layers of an image, while the next ones are downloaded.

    python -P -c … PARENT HOW       orders on standard input and answers are lines of JSON
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Self

import msgspec

from proctor.environments.sandbox.mapped_work import AS_ROOT, MAP_SELF, MAPPED, gain_access
from proctor.environments.sandbox.privileges import is_all_powerful
from proctor.environments.sandbox.roots.image_tar import Budget
from proctor.environments.sandbox.roots.layer_tree import LayerTree
from proctor.environments.sandbox.roots.layers import measure
from proctor.environments.sandbox.roots.saved_files import Layer, put_layer
from proctor.environments.sandbox.subordinate import find_subordinate_ids, write_id_maps
from proctor.environments.sandbox.syscalls import PR_SET_PDEATHSIG, prctl
from proctor.errors import ImageError
from proctor.files import read_small
from proctor.sentence import count_of

_START = "from proctor.environments.sandbox.roots.unpacking import main; main()"
_END_SECONDS = 10
FACTS = "layer.json"
"""File of LayerFacts, beside the files of the layer."""


class UnpackOrder(msgspec.Struct, frozen=True):
    """A layer to unpack."""

    blob: str
    """Its file, checked against its digest."""
    target: str
    """An empty directory."""
    lowers: tuple[str, ...]
    """Directories of the layers below, topmost first."""
    name: str
    diff_id: str
    most: int
    """Bytes that it may have when it is unpacked."""
    n_ids: int | None = None
    """Number of users whose files can be made; None: all."""


class LayerFacts(msgspec.Struct, frozen=True):
    """layer.json: an unpacked layer."""

    diff_id: str
    """SHA-256 of the uncompressed archive, in hex."""
    size: int
    """Sum of the sizes of its files, in bytes."""
    n_entries: int
    notes: tuple[str, ...]
    """Messages about what was left out."""
    n_squashed: int
    """Number of entries of other users that belong to root here."""
    hides_all: bool
    """Whether nothing of the layers below is left."""
    disk_size: int | None = None
    """Bytes on the disk; None: not measured."""
    n_unpacked: int = 0
    """Bytes of the uncompressed archive, and of holes in its files; 0: not counted."""


def load_facts(layer: Path) -> LayerFacts:
    """Load what is known of a layer in the store.

    Raises:
        ImageError: it cannot be read.
    """
    path = layer / FACTS
    try:
        return msgspec.json.decode(read_small(str(path)), type=LayerFacts)
    except (OSError, msgspec.DecodeError) as error:
        raise ImageError(f"{path}: cannot be read: {error}; pull the image again") from error


class _Answer(msgspec.Struct, frozen=True):
    facts: LayerFacts | None = None
    refusal: str = ""
    """Why the layer is refused."""
    errno: int = 0
    reason: str = ""
    place: str | None = None
    """Error of the system, if it is one."""


class Unpacker:
    """The child process; runs as long as the `with`."""

    def __init__(self) -> None:
        self._ids = () if is_all_powerful() else find_subordinate_ids()
        self._how = AS_ROOT if is_all_powerful() else MAPPED if self._ids else MAP_SELF
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def n_ids(self) -> int | None:
        """Number of users whose files it can make; None: all."""
        if self._how == AS_ROOT:
            return None
        return 1 + sum(count for _, _, count in self._ids)

    def __enter__(self) -> Self:
        """Start the child."""
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, str(os.getpid()), self._how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # Ctrl-C is for this process, which then ends the child itself.
            start_new_session=True,
        )
        if self._how == MAPPED:
            source, sink = self._pipes(self._child)
            if source.readline():
                write_id_maps(self._child.pid, self._ids)
            sink.write(b"\n")
            sink.flush()
        return self

    def __exit__(self, *_: object) -> None:
        """End the child."""
        child = self._child
        if child is None:
            return
        with child:
            child.kill()
            child.communicate(timeout=_END_SECONDS)

    def unpack(self, order: UnpackOrder) -> LayerFacts:
        """Unpack a layer.

        Raises:
            ImageError: it is damaged, or leads out of the root.
            OSError: it cannot be written.
        """
        child = self._child
        if child is None:
            raise ValueError("the child process was not started")
        source, sink = self._pipes(child)
        order = msgspec.structs.replace(order, n_ids=self.n_ids)
        try:
            sink.write(msgspec.json.encode(order) + b"\n")
            sink.flush()
        except BrokenPipeError:
            pass  # what it said is read below
        line = source.readline()
        if not line:
            said = child.communicate()[1].decode(errors="replace").strip().rpartition("\n")[2]
            raise ImageError(f"{order.name}: the process that unpacks it ended: {said}")
        answer = msgspec.json.decode(line, type=_Answer)
        if answer.errno:
            raise OSError(answer.errno, answer.reason, answer.place)
        if answer.facts is None:
            raise ImageError(answer.refusal)
        return answer.facts

    def _pipes(self, child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
        if child.stdout is None or child.stdin is None:
            raise ValueError("the child process has no pipes")
        return child.stdout, child.stdin


def main() -> None:
    """Unpack the layers of standard input until it ends."""
    parent, how = sys.argv[1:]
    try:
        gain_access(how)
    except OSError as error:
        sys.exit(f"no user namespace can be made for the owners of files: {error.strerror}")
    # After the change of credentials, which would clear it.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return
    # Files get exactly the modes of the archive.
    os.umask(0)
    namespace = "trusted" if how == AS_ROOT else "user"
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=UnpackOrder)
        try:
            answer = _Answer(facts=_unpack(order, namespace))
        except ImageError as error:
            # Names in archives may not be valid text.
            answer = _Answer(refusal=str(error).encode(errors="backslashreplace").decode())
        except OSError as error:
            place = error.filename if isinstance(error.filename, str) else None
            answer = _Answer(
                errno=error.errno or -1, reason=error.strerror or str(error), place=place
            )
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


def _unpack(order: UnpackOrder, namespace: str) -> LayerFacts:
    target = Path(order.target)
    lowers = [Path(lower) for lower in order.lowers]
    tree = LayerTree(target, lowers, namespace=namespace, n_ids=order.n_ids)
    layer = Layer(name=order.name, digest=None, size=None, diff_id=order.diff_id)
    budget = Budget(target, most=order.most)
    with Path(order.blob).open("rb") as file:
        left_out = put_layer(file, layer, tree, budget)
    tree.finish()
    return LayerFacts(
        diff_id=order.diff_id,
        size=tree.size,
        n_entries=len(tree),
        notes=tuple(
            f"{what} left out: {count_of(n, 'entry', 'entries')}"
            for what, n in (*left_out.items(), *tree.left_out.items())
        ),
        n_squashed=tree.n_squashed,
        hides_all=tree.hides_all,
        disk_size=measure(target),
        n_unpacked=budget.n_taken,
    )
