"""What is mounted where, and which file systems are of a network."""

from pathlib import Path

import pytest

from proctor.filesystems import NETWORK, find_network


def test_a_local_file_system_is_no_network() -> None:
    assert find_network(Path("/proc/self")) is None


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs"])
def test_file_systems_of_a_network_are_named(kind: str) -> None:
    assert kind in NETWORK


@pytest.mark.parametrize("kind", ["ext4", "overlay", "tmpfs", "fuseblk", "fuse.fuse-overlayfs"])
def test_file_systems_of_this_machine_are_not(kind: str) -> None:
    assert kind not in NETWORK
