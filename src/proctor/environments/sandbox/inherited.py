"""Resource limits and OOM score of PID 1 and its workers, which their children inherit.

If an agent could lower a limit of one of them, it would lower it for the verifier's tests too. The
seccomp filter prevents that; this module is a second defence. Restored before each fork.
"""

import errno
import os
import resource
from contextlib import suppress
from dataclasses import dataclass

_NAMES = {getattr(resource, name): name for name in dir(resource) if name.startswith("RLIMIT_")}
_OOM_SCORE = "/proc/self/oom_score_adj"


@dataclass(frozen=True, slots=True)
class Inherited:
    """Values that a process started with."""

    limits: dict[int, tuple[int, int]]
    """Soft and hard limit of each resource number."""
    oom_score: bytes

    def restore(self) -> None:
        """Undo changes.

        Raises:
            OSError: a hard limit was lowered, which no process of a sandbox can undo.
        """
        for number, limit in self.limits.items():
            if (found := resource.getrlimit(number)) != limit:
                try:
                    resource.setrlimit(number, limit)
                except (OSError, ValueError) as error:
                    sentence = f"{_NAMES[number]} was changed from {limit} to {found}"
                    raise OSError(errno.EPERM, sentence) from error
        # In a user namespace, no process inside may write it, including this one.
        with suppress(OSError):
            if _read_oom_score() != self.oom_score:
                _write_oom_score(self.oom_score)


def read_inherited() -> Inherited:
    """Read the values of this process."""
    limits = {number: resource.getrlimit(number) for number in _NAMES}
    return Inherited(limits, _read_oom_score())


def _read_oom_score() -> bytes:
    fd = os.open(_OOM_SCORE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 16)
    finally:
        os.close(fd)


def _write_oom_score(score: bytes) -> None:
    fd = os.open(_OOM_SCORE, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, score)
    finally:
        os.close(fd)
