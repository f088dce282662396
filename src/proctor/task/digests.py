"""All digests of one task together. It reads the whole directory and decides nothing."""

from pathlib import Path

import msgspec

from proctor.task.checksum import hash_tree
from proctor.task.hashed import SHARED, FileHashes
from proctor.task.lock_digest import find_lock_files, lock_digest
from proctor.task.manifest import FileDigest, hash_files, task_digest


class TaskDigests(msgspec.Struct, frozen=True):
    """What pins a task to its bytes."""

    task_checksum: str
    """As in a trial's result.json: every file of the directory, links followed."""
    lock_digest: str
    """As in a job's lock.json, without its `sha256:`: the files that harbor would publish."""
    dataset_v1: str
    """The task's digest in a manifest of dataset digest v1: every file that is no link."""
    files: tuple[FileDigest, ...]
    """Every file that is no link, in order."""
    followed: tuple[FileDigest, ...] | None
    """Every file that task_checksum covers, links followed, in order; None where links make more
    paths than can be listed."""
    locked: frozenset[str]
    """The paths that the lock digest covers."""

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


def load_digests(directory: Path, hashes: FileHashes = SHARED) -> TaskDigests:
    """Every digest of a task directory, whether or not harbor would take it.

    Raises:
        TaskError: something in it cannot be read or hashed.
    """
    files = hash_files(directory, hashes)
    tree = hash_tree(directory, hashes)
    return TaskDigests(
        task_checksum=tree.checksum,
        lock_digest=lock_digest(directory, hashes),
        dataset_v1=task_digest(files),
        files=files,
        followed=tree.files,
        locked=frozenset(find_lock_files(directory)),
    )
