"""Runs a command where the sandboxes' scratch is a small file system of its own.

    python tests/cheaters/confined.py SCRATCH MIB REPORT WORD…

An agent that fills the disk fills that one. In a mount namespace of its own, so that nothing of it
is seen outside; what is left in the scratch when the command ends is listed in REPORT.
"""

import os
import subprocess
import sys
from pathlib import Path

from proctor.environments.sandbox.syscalls import MS_PRIVATE, MS_REC, mount
from tests.ordinary_user import give


def main() -> None:
    """Mount, run, tell."""
    scratch, size, report, *words = sys.argv[1:]
    os.unshare(os.CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    owner = Path(scratch).stat().st_uid
    mount("tmpfs", scratch, "tmpfs", options=f"mode=700,size={size}m")
    if owner:
        give(Path(scratch))
    code = subprocess.run(words, check=False).returncode
    Path(report).write_text("\n".join(str(path) for path in Path(scratch).rglob("*")))
    sys.exit(code)


if __name__ == "__main__":
    main()
