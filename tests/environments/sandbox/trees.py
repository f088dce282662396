"""Small root file systems, and archives of them that are good or bad."""

import io
import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path

from proctor.environments.sandbox.roots.image import Image
from proctor.environments.sandbox.roots.images import ImageStore, Known
from tests.task.trees import write

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NOTHING = Known({})


def make_tree(root: Path) -> Path:
    """What passes for a root file system: links, a hard link, a closed directory, a setuid file."""
    write(root, {"usr/bin/tool": "tool", "etc/hosts": "h", "closed/in": "x"})
    (root / "bin").symlink_to("usr/bin")
    (root / "away").symlink_to("/etc/passwd")
    (root / "usr" / "bin" / "tool").chmod(0o4755)
    (root / "usr" / "bin" / "same").hardlink_to(root / "usr" / "bin" / "tool")
    # Whoever is not root has to be able to read what they import.
    (root / "closed" / "in").chmod(0 if os.geteuid() == 0 else 0o400)
    (root / "closed").chmod(0o500)
    return root


def take(store: ImageStore, source: Path, name: str = "mine", **more: bool) -> Image:
    return store.import_image(name, source, NOTHING, now=NOW, **more).image


def archive(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as tar:
        for member in (entry("usr", tarfile.DIRTYPE), *members):
            tar.addfile(member, io.BytesIO(bytes(member.size)) if member.isreg() else None)
    return path


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", **facts: int
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, link, 0o755
    for fact, value in facts.items():
        setattr(member, fact, value)
    return member
