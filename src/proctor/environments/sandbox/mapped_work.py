"""Functions that read and copy what sandboxes wrote, and the child process that runs them.

    python -I -S -c … LOCATION PARENT HOW       job on standard input and result are JSON

A trial of an unprivileged user starts several of these, so it imports only what is needed, from the
standard library.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from proctor.environments.sandbox.copying import Selection, TooLargeError, copy_tree, copy_trees
from proctor.environments.sandbox.syscalls import PR_SET_PDEATHSIG, prctl
from proctor.environments.sandbox.users import map_self
from proctor.environments.sandbox.walk import Layers, Limits, list_written

AS_ROOT, MAP_SELF, MAPPED = "root", "self", "mapped"
"""How to get access: as root, or as root of a user namespace, with a map that this process writes,
or with one that the runner writes after this process has printed a line."""
TOO_LARGE = 3
"""Exit code if the disk has no space for a copy."""


def _walk(parts: list[list[Any]], known: dict[str, str], limits: list[Any]) -> Any:
    layers = [Layers(target, upper, tuple(lowers)) for target, upper, lowers in parts]
    return list_written(layers, known, Limits(*limits))


def _copy(pairs: list[list[str]], left_out: Sequence[str] = (), plain: Sequence[str] = ()) -> None:
    """Copy trees, without the same paths in each."""
    selection = Selection(frozenset(left_out), frozenset(plain))
    copy_trees([(source, target) for source, target in pairs], selection)


def _clone(trees: list[list[Any]], is_linking: bool) -> None:  # noqa: FBT001 - it comes as JSON
    """Copy trees, each without its own list of paths, or hard-link their files."""
    for source, target, left_out, plain in trees:
        copy_tree(source, target, Selection(frozenset(left_out), frozenset(plain), is_linking))


WORK: dict[str, Callable[..., Any]] = {"walk": _walk, "copy": _copy, "clone": _clone}


def main() -> None:
    """Run the job of standard input; print errors to standard error, in one line."""
    parent, how = sys.argv[2:]
    try:
        gain_access(how)
        # After the change of credentials, which would clear it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The runner ended before the death signal was set.
        if os.getppid() != int(parent):
            return
        # Each level of directories keeps files open, one for each layer.
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        # Copies get exactly the modes of their originals.
        os.umask(0)
        work, arguments = json.loads(sys.stdin.buffer.read())
        sys.stdout.write(json.dumps(WORK[work](*arguments)))
    except OSError as error:
        sys.exit(describe_fault(error))
    except TooLargeError as error:
        sys.stderr.write(str(error))
        sys.exit(TOO_LARGE)


def describe_fault(error: OSError) -> str:
    """Return the system's message, with the file."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror}"


def gain_access(how: str) -> None:
    """Become root of a user namespace, unless this process is root already; see AS_ROOT."""
    if how == AS_ROOT:
        return
    uid, gid = os.geteuid(), os.getegid()
    os.unshare(os.CLONE_NEWUSER)
    if how == MAP_SELF:
        map_self(uid, gid)
    else:
        os.write(1, b"\n")
        os.read(0, 1)
    os.setgid(0)
    os.setuid(0)
