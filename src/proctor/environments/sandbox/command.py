"""Starts a command in a child of PID 1: user, groups, capabilities, exec.

    become_command    turn this process into the command
    launch            start a command from a worker, which has already dropped its privileges

Errors are sent on the channel, or printed as a shell would: exit code 126 if it cannot be executed,
127 if it does not exist. Does not wait for commands.
"""

import errno
import fcntl
import os
import resource
import signal
import stat
import termios
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.filter import filter_system_calls
from proctor.environments.sandbox.privileges import hand_down, keep_only_room, reduce_command
from proctor.environments.sandbox.syscalls import PR_SET_KEEPCAPS, prctl
from proctor.environments.sandbox.users import UnknownUserError, User, find_user

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_NOT_EXECUTABLE = 126
_NOT_THERE = 127
_FIRST_OTHER_FILE = 3
_MOST_FILES = 1 << 20
# Signals that Python, the zygote or PID 1 handle or ignore, and commands should not.
_OURS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)


def become_command(command: Command, output: int, stdin: int, room: int) -> NoReturn:
    """Replace this process with the command; `output` is its standard output and error."""
    if os.isatty(stdin):
        # Shells need a controlling terminal for job control, and Ctrl-C to reach their commands.
        fcntl.ioctl(stdin, termios.TIOCSCTTY, 0)
    _give_up(room)
    user = find_user(command.user)
    _mark(command.script)
    _become(command, user, {0: stdin, 1: output, 2: output}, room)


def prepare_launches(nothing: int, room: int) -> None:
    """Drop the privileges of this process that no command may have, once for all launches."""
    for number in range(_FIRST_OTHER_FILE):
        os.dup2(nothing, number)
    _give_up(room)
    hand_down(room)
    os.umask(0o022)


def _give_up(room: int) -> None:
    reduce_command(room)
    filter_system_calls()


def launch(command: Command, output: int, room: int, report: Callable[[str], None]) -> int:
    """Start a command, with `output` as its standard output and error; return its pid.

    `report` is called in the child if it cannot become the user.
    """
    user = find_user(command.user)
    _mark(command.script)
    if (user.uid, user.gid) == (0, 0) and (pid := _spawn_as_root(command, user, output)):
        return pid
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            _become(command, user, {1: output, 2: output}, room)
        except UnknownUserError as error:
            report(str(error))
        finally:
            os._exit(_NOT_EXECUTABLE)
    return pid


def _mark(script: str) -> None:
    """Make a script executable, like `chmod +x`; on failure, running it gives the error."""
    if script:
        with suppress(OSError):
            mode = stat.S_IMODE(os.stat(script).st_mode)
            if mode | 0o111 != mode:
                os.chmod(script, mode | 0o111)  # noqa: S103 - as it was asked for


def _spawn_as_root(command: Command, user: User, output: int) -> int:
    """Start it with posix_spawn, which is faster than fork; return 0 on failure."""
    environment = {"PATH": PATH, "HOME": user.home} | command.env
    program = _find_program(command.argv[0], environment["PATH"])
    try:
        if _may_set_groups():
            os.setgroups(user.groups)
        os.chdir(command.cwd)
        return os.posix_spawn(
            program,
            command.argv,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, output, number) for number in (1, 2)],
            setsigdef=_OURS,
            setsid=True,
        )
    except (OSError, NotImplementedError):
        # The caller falls back to fork, where the error can be reported.
        return 0
    finally:
        os.chdir("/")


def _find_program(program: str, places: str) -> str:
    if "/" in program:
        return program
    found = (os.path.join(place, program) for place in places.split(":"))
    return next((path for path in found if os.access(path, os.X_OK)), "")


def _become(command: Command, user: User, files: dict[int, int], room: int) -> NoReturn:
    become_user(user, room)
    hand_down(room)
    for number, fd in files.items():
        os.dup2(fd, number)
    os.closerange(_FIRST_OTHER_FILE, _MOST_FILES)
    os.umask(0o022)
    reset_signals()
    _execute(command, {"PATH": PATH, "HOME": user.home} | command.env)


def become_user(user: User, room: int) -> None:
    """Become a user, irrevocably.

    Raises:
        UnknownUserError: the sandbox of an unprivileged user has no such id.
    """
    try:
        if _may_set_groups():
            os.setgroups(user.groups)
        # Groups before the user, who would not be allowed to change them.
        os.setresgid(user.gid, user.gid, user.gid)
        if user.uid != 0:
            # Otherwise leaving root would drop the room's capability as well.
            prctl(PR_SET_KEEPCAPS, 1)
        os.setresuid(user.uid, user.uid, user.uid)
    except OSError as error:
        raise UnknownUserError(
            f"user {user.uid}:{user.gid} does not exist in this sandbox ({error.strerror}): it "
            "belongs to an unprivileged user without enough subordinate ids; add some to "
            "/etc/subuid and /etc/subgid and install newuidmap, or run as root"
        ) from error
    if user.uid != 0:
        keep_only_room(room)


def _may_set_groups() -> bool:
    with open("/proc/self/setgroups", "rb") as file:
        return file.read().strip() == b"allow"


def reset_signals() -> None:
    """Restore default signal handlers: exec would keep ignored signals ignored."""
    for number in _OURS:
        signal.signal(number, signal.SIG_DFL)


def _execute(command: Command, environment: dict[str, str]) -> NoReturn:
    try:
        os.chdir(command.cwd)
    except OSError as error:
        _leave(f"cannot enter {command.cwd}: {error.strerror}", _NOT_EXECUTABLE)
    program = command.argv[0]
    places = [""] if "/" in program else environment["PATH"].split(":")
    refused: OSError | None = None
    for place in places:
        try:
            os.execve(os.path.join(place, program), command.argv, environment)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = error
    if refused is not None:
        _leave(f"cannot execute {program}: {refused.strerror}", _NOT_EXECUTABLE)
    _leave(f"cannot execute {program}: No such file or directory", _NOT_THERE)


def _leave(sentence: str, code: int) -> NoReturn:
    os.write(2, f"proctor: {sentence}\n".encode(errors="surrogateescape"))
    os._exit(code)


# Resource limits and OOM score of PID 1 and its workers, which their children inherit
#
# If an agent could lower a limit of one of them, it would lower it for the verifier's tests too.
# The seccomp filter prevents that; this module is a second defence. Restored before each fork.


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
                fd = os.open(_OOM_SCORE, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(fd, self.oom_score)
                finally:
                    os.close(fd)


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
