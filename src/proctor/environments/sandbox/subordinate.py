"""Subordinate ids of an unprivileged user.

/etc/subuid and /etc/subgid give a user further ids; newuidmap and newgidmap map them into a user
namespace. Files of a sandbox's other users belong to such ids on the host, and can only be deleted
in such a namespace.
"""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_SUBUID = Path("/etc/subuid")
_SUBGID = Path("/etc/subgid")
_TOOLS = ("newuidmap", "newgidmap")
_TIMEOUT_SEC = 600

type IdMap = tuple[tuple[int, int, int], ...]
"""Lines (inside, outside, count) of an id map."""

# Run in a child, which prints a line once its user namespace exists, and continues when its ids are
# mapped.
_DELETING = """
import os, sys
from pathlib import Path
from proctor.environments.sandbox.delete import delete_tree
os.unshare(os.CLONE_NEWUSER)
print(flush=True)
sys.stdin.readline()
os.setuid(0)
delete_tree(Path(sys.argv[1]))
"""


def find_subordinate_ids(subuid: Path = _SUBUID, subgid: Path = _SUBGID) -> IdMap:
    """Return the ids that this user can map both for users and for groups, from 1 on.

    Empty for root, and if the user has none or cannot map them.
    """
    if os.geteuid() == 0 or not all(map(shutil.which, _TOOLS)):
        return ()
    groups = set(_ranges(subgid))
    common = next((found for found in _ranges(subuid) if found in groups), None)
    return () if common is None else ((1, *common),)


def _ranges(path: Path) -> Iterator[tuple[int, int]]:
    """Yield first id and count of each line of this user."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        names = {str(os.geteuid()), pwd.getpwuid(os.geteuid()).pw_name}
    except (OSError, KeyError):
        return
    for line in lines:
        name, _, rest = line.strip().partition(":")
        first, _, count = rest.partition(":")
        if name in names and first.isdecimal() and count.isdecimal():
            yield int(first), int(count)


def delete_mapped(directory: Path) -> None:
    """Delete a tree in which files belong to subordinate ids.

    Raises:
        OSError: it cannot be deleted.
    """
    ids = find_subordinate_ids()
    if not ids:
        raise PermissionError(1, "files in it belong to another user", str(directory))
    child = subprocess.Popen(
        [sys.executable, "-c", _DELETING, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with child:
        if child.stdout is not None and child.stdout.readline():
            write_id_maps(child.pid, ids)
        _, said = child.communicate(b"\n", timeout=_TIMEOUT_SEC)
    if child.returncode != 0:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise PermissionError(1, last or "cannot be deleted", str(directory))


def write_id_maps(pid: int, ids: IdMap) -> None:
    """Map this user to 0 in a process's user namespace, and the subordinate ids above.

    Raises:
        OSError: newuidmap or newgidmap failed.
    """
    for tool, own in zip(_TOOLS, (os.geteuid(), os.getegid()), strict=True):
        lines = [(0, own, 1), *ids]
        numbers = [str(number) for line in lines for number in line]
        done = subprocess.run(
            [tool, str(pid), *numbers], capture_output=True, check=False, timeout=_TIMEOUT_SEC
        )
        if done.returncode != 0:
            raise PermissionError(1, done.stderr.decode(errors="replace").strip(), tool)
