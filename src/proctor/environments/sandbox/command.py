"""From a child of PID 1 to the command that was asked for: user, groups, capabilities, exec.

    become_command    in a child that is to be nothing else
    launch            by one that has given up its rights already, and starts many

What cannot be done is told on the channel, or printed as a shell would print it: 126 for what
cannot be executed, 127 for what is not there. Nothing here waits for a command.
"""

import os
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
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
_OURS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)
"""Signals that Python, the zygote or PID 1 handle or ignore."""


def become_command(command: Command, output: int, nothing: int, room: int) -> NoReturn:
    """Execute it, with `output` as its standard and error output, in the room that was entered.

    Raises:
        UnknownUserError: its user cannot be had.
    """
    _give_up(room)
    user = find_user(command.user)
    _mark(command.script)
    _become(command, user, {0: nothing, 1: output, 2: output}, room)


def prepare_launches(nothing: int, room: int) -> None:
    """Give up what no command may have, for all that are launched from here."""
    for number in range(_FIRST_OTHER_FILE):
        os.dup2(nothing, number)
    _give_up(room)
    hand_down(room)
    os.umask(0o022)


def _give_up(room: int) -> None:
    reduce_command(room)
    filter_system_calls()


def launch(command: Command, output: int, room: int, tell: Callable[[str], None]) -> int:
    """Start it, with `output` as its standard and error output; its pid.

    `tell` is called in a child whose user cannot be had.

    Raises:
        UnknownUserError: there is no such user.
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
            tell(str(error))
        finally:
            os._exit(_NOT_EXECUTABLE)
    return pid


def _mark(script: str) -> None:
    """Do what `chmod +x` does; where that cannot be done, running it will say so."""
    if script:
        with suppress(OSError):
            mode = stat.S_IMODE(os.stat(script).st_mode)
            if mode | 0o111 != mode:
                os.chmod(script, mode | 0o111)  # noqa: S103 - as it was asked for


def _spawn_as_root(command: Command, user: User, output: int) -> int:
    """Start it without a copy of this process; 0 where it has to be done otherwise."""
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
        # Whoever tries again in a child of its own can say what is wrong.
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
    """Be that user for ever.

    Raises:
        UnknownUserError: the sandbox belongs to an ordinary user and has no such id.
    """
    try:
        if _may_set_groups():
            os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
        if user.uid != 0:
            prctl(PR_SET_KEEPCAPS, 1)
        os.setresuid(user.uid, user.uid, user.uid)
    except OSError as error:
        raise UnknownUserError(
            f"user {user.uid}:{user.gid} cannot be had in this sandbox ({error.strerror}): it was "
            "made by an ordinary user without enough subordinate ids; add some to /etc/subuid and "
            "/etc/subgid and install newuidmap, or run as root"
        ) from error
    if user.uid != 0:
        keep_only_room(room)


def _may_set_groups() -> bool:
    with open("/proc/self/setgroups", "rb") as file:
        return file.read().strip() == b"allow"


def reset_signals() -> None:
    """Undo what Python did to signals; an ignored one would be handed down."""
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
