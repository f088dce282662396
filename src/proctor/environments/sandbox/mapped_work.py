"""What is done on what sandboxes wrote, and the child process that does it where that is needed.

    python -I -S -c … LOCATION PARENT HOW       its job is JSON on standard input, the result JSON

An ordinary user's trial starts several of them, so that nothing is imported here but what the work
needs, all of it of the standard library.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from proctor.environments.sandbox.copying import Selection, TooLargeError, copy_tree, copy_trees
from proctor.environments.sandbox.identity import map_self
from proctor.environments.sandbox.syscalls import PR_SET_PDEATHSIG, prctl
from proctor.environments.sandbox.walk import Layers, Limits, list_written

AS_ROOT, MAP_SELF, MAPPED = "root", "self", "mapped"
"""How to be allowed to read all of it: as root, or in a user namespace of which this process is
root, by its own map or by one that the runner writes once it was told a line."""
TOO_LARGE = 3
"""Exit code of a child that was asked for a copy for which there is no room."""


def _walk(parts: list[list[Any]], known: dict[str, str], limits: list[Any]) -> Any:
    layers = [Layers(target, upper, tuple(lowers)) for target, upper, lowers in parts]
    return list_written(layers, known, Limits(*limits))


def _copy(pairs: list[list[str]], left_out: Sequence[str] = (), plain: Sequence[str] = ()) -> None:
    """Copy trees without some paths, which are the same in each."""
    selection = Selection(frozenset(left_out), frozenset(plain))
    copy_trees([(source, target) for source, target in pairs], selection)


def _clone(trees: list[list[Any]], is_linking: bool) -> None:  # noqa: FBT001 - it comes as JSON
    """Copy trees, each without some paths of its own, or link their files."""
    for source, target, left_out, plain in trees:
        copy_tree(source, target, Selection(frozenset(left_out), frozenset(plain), is_linking))


WORK: dict[str, Callable[..., Any]] = {"walk": _walk, "copy": _copy, "clone": _clone}


def main() -> None:
    """Do what standard input says; what goes wrong is said on standard error, in one line."""
    parent, how = sys.argv[2:]
    try:
        _be_allowed(how)
        # After the change of rights, which would clear it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):
            return
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        os.umask(0)
        work, arguments = json.loads(sys.stdin.buffer.read())
        sys.stdout.write(json.dumps(WORK[work](*arguments)))
    except OSError as error:
        sys.exit(describe_fault(error))
    except TooLargeError as error:
        sys.stderr.write(str(error))
        sys.exit(TOO_LARGE)


def describe_fault(error: OSError) -> str:
    """What the system said, with the file."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror}"


def _be_allowed(how: str) -> None:
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
