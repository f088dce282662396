"""What every process inherits: resource limits and the OOM score. For PID 1 and its workers.

An agent that could lower a limit of one of them would choose the limits of the verifier's tests.
The filter refuses that; this is the second line. Restored before each fork; reading is cheap.
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
    """The values that a process was started with."""

    limits: dict[int, tuple[int, int]]
    """Soft and hard, by the number of the resource."""
    oom_score: bytes

    def restore(self) -> None:
        """Set what has been changed back.

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
        # In a user namespace nobody inside may write it, this process included.
        with suppress(OSError):
            if _read_oom_score() != self.oom_score:
                _write_oom_score(self.oom_score)


def read_inherited() -> Inherited:
    """The values that this process has."""
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
