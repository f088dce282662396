"""Mounts that the zygote, as root on the host, makes for a sandbox with its own ids.

    layers     with mapped owners: root's files on the disk are root's inside
    overlays   of these layers; written files have the same owners on the disk as inside
    rooms      the directory for verifiers' rooms, with mapped owners
    devices    a file system with six device nodes

All are detached mounts, which PID 1, without rights on the host, attaches. Mapped layers stay
mounted in the zygote's namespace as long as their directories exist, because many kernels make
overlays only of mounted directories.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from proctor.environments.sandbox.blueprint import Blueprint, Part
from proctor.environments.sandbox.channel import close_all
from proctor.environments.sandbox.rootfs import DEVICES_OPTIONS, PLAIN, Premade, make_nodes, step
from proctor.environments.sandbox.syscalls import (
    MS_NOEXEC,
    MS_NOSUID,
    attach_tree,
    clone_tree,
    effective_capabilities,
    make_tree,
    map_tree,
    set_capabilities,
    set_file_ids,
)

_HINT = "it requires Linux 5.19 and ext4, xfs or btrfs (from Linux 6.3 on also tmpfs)"
_LONGEST_OPTION = 255
_OPEN = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

# Mount points of mapped layers, and of overlays that are reused.
_MOUNTED: set[str] = set()


def premake(blueprint: Blueprint, pid: int) -> Premade:
    """Make the mounts for the sandbox whose PID 1 is `pid`; its ids are mapped already.

    Raises:
        StepError: the kernel or a file system refuses.
    """
    made: list[int] = []
    with step("opening the sandbox's user namespace"):
        namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for number, part in enumerate(blueprint.parts):
            made.append(_make_part(blueprint, number, part, namespace))
        made.append(_make_rooms(blueprint.rooms, namespace))
        with step("making devices"), _files_as(blueprint.first_id):
            made.append(make_tree("tmpfs", DEVICES_OPTIONS.items(), MS_NOSUID | MS_NOEXEC))
            make_nodes(made[-1])
    except BaseException:
        close_all(made)
        raise
    finally:
        os.close(namespace)
    *parts, rooms, devices = made
    return Premade(tuple(parts), rooms, devices)


def _make_part(blueprint: Blueprint, number: int, part: Part, namespace: int) -> int:
    """Make the overlay of one part, as a detached mount."""
    if part.mounted in _MOUNTED:
        with step(f"copying the overlay on {part.target}"):
            return _clone(part.mounted)
    # Overlayfs requires upper and work directory in one mount.
    above = os.path.dirname(part.upper)
    with step(f"mapping the owners of files in {above}", _HINT):
        both = _mount_mapped(above, f"{blueprint.layers}/{number}", namespace)
    lowers = []
    for n, lower in enumerate(part.lowers):
        with step(f"mapping the owners of files in {lower}", _HINT):
            lowers.append(_mount_mapped(lower, f"{blueprint.layers}/{number}.{n}", namespace))
    mapped = replace(
        part,
        lowers=tuple(lowers),
        upper=f"{both}/{os.path.basename(part.upper)}",
        work=f"{both}/{os.path.basename(part.work)}",
    )
    with step(f"mounting an overlay on {part.target}"):
        overlay = _make_overlay(mapped, blueprint.first_id)
        if not part.mounted:
            return overlay
        try:
            attach_tree(overlay, part.mounted)
            _MOUNTED.add(part.mounted)
            return clone_tree(overlay)
        finally:
            os.close(overlay)


def _mount_mapped(directory: str, place: str, namespace: int) -> str:
    """Mount a directory with mapped owners, once; return the mount point."""
    if place not in _MOUNTED:
        os.makedirs(place, 0o700, exist_ok=True)
        tree = _clone(directory)
        try:
            map_tree(tree, namespace)
            attach_tree(tree, place)
        finally:
            os.close(tree)
        _MOUNTED.add(place)
    return place


def _clone(directory: str) -> int:
    fd = os.open(directory, _OPEN)
    try:
        return clone_tree(fd)
    finally:
        os.close(fd)


def _make_overlay(part: Part, owner: int) -> int:
    files = [os.open(path, _OPEN) for path in (part.upper, part.work, *part.lowers)]
    upper, work, *lowers = map(str, files)
    below = [("lowerdir", ":".join(lowers))]
    if len(below[0][1]) > _LONGEST_OPTION:
        # From Linux 6.5 on; images of so many layers are rare.
        below = [("lowerdir+", lower) for lower in lowers]
    options = [*below, ("upperdir", upper), ("workdir", work)]
    try:
        # Descriptor numbers as relative paths: an option is limited to 255 bytes, and /proc/mounts
        # would show host paths.
        os.chdir("/proc/self/fd")
        with _files_as(owner):
            try:
                # Without `volatile`, unmounting would sync the whole file system.
                return make_tree("overlay", [*options, ("volatile", "")], PLAIN)
            except OSError:
                return make_tree("overlay", options, PLAIN)
    finally:
        os.chdir("/")
        close_all(files)


@contextmanager
def _files_as(owner: int) -> Iterator[None]:
    """Create files as the sandbox's root, with all capabilities.

    In mapped layers the host's root is nobody, and an overlay accesses its layers with the
    credentials of the process that mounted it.
    """
    held = effective_capabilities()
    set_file_ids(owner, owner)
    try:
        # Changing the file ids from root dropped the capabilities for files of others.
        set_capabilities(held, 0)
        yield
    finally:
        set_file_ids(0, 0)


def _make_rooms(place: str, namespace: int) -> int:
    with step("making a place for verifiers' rooms"):
        os.makedirs(place, 0o700, exist_ok=True)
        tree = _clone(place)
        try:
            # Tests have to be executable there, even if the host's scratch is noexec.
            map_tree(tree, namespace, PLAIN, MS_NOEXEC)
        except BaseException:
            os.close(tree)
            raise
        return tree
