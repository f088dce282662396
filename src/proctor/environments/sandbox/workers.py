"""Children of PID 1 that do operations and start commands, one after the other, in one room each.

A fork of PID 1 for each of these would take longer than most of them do. While one is busy, others
get a child of their own. Whoever is root inside can stop or kill one, as it could any child: it is
replaced, and the operation that it was on has failed. Nobody inside can look into one.

    the runner to a worker, and back: an operation, and its answer (router.py)
    PID 1 to a worker    what the runner asked for, with the files that came along
    a worker to PID 1    {}                  it is free again; the runner has its answer
                         {"pid": …}          the command that it was given runs, and it is free
                         {"ended", "code"}   a command that it had started has ended
"""

import os
import select
import signal
import socket
from dataclasses import dataclass
from typing import Any

from proctor.environments.sandbox.archive import BrokenArchiveError
from proctor.environments.sandbox.blueprint import command_of
from proctor.environments.sandbox.channel import Message, close_all, receive, send
from proctor.environments.sandbox.command import launch
from proctor.environments.sandbox.file_ops import OPERATIONS
from proctor.environments.sandbox.inherited import Inherited
from proctor.environments.sandbox.users import UnknownUserError


@dataclass(slots=True)
class Worker:
    """One of them, as PID 1 knows it."""

    pid: int
    line: socket.socket
    is_busy: bool = False
    last_errand: int | None = None
    """The operation that it was given last, unless there was a command since."""

    def hand(self, request: dict[str, Any], files: list[int]) -> bool:
        """Give it something to do; False where it has something, or is dead."""
        if self.is_busy:
            return False
        try:
            send(self.line, request, files)
        except OSError:
            return False
        self.is_busy = True
        self.last_errand = None if request["op"] == "run" else int(request["id"])
        return True


def sentence_of(number: object, error: OSError) -> Message:
    """An answer that says what went wrong."""
    place = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or str(error)
    return {"id": number, "error": f"{place}{reason}", "errno": error.errno}


def do_errand(request: dict[str, Any], files: list[int]) -> Message:
    """Do one operation; its answer."""
    number = request["id"]
    try:
        return {"id": number, **OPERATIONS[str(request["op"])](request, files)}
    except OSError as error:
        return sentence_of(number, error)
    except (BrokenArchiveError, ValueError) as error:
        return {"id": number, "error": str(error)}
    finally:
        close_all(files)


@dataclass(slots=True)
class Duty:
    """What a worker has to work with."""

    channel: socket.socket
    """To the runner."""
    line: socket.socket
    """To PID 1."""
    own_line: socket.socket | None
    """To the runner, for operations that PID 1 is not asked for; None where another had it."""
    room: int
    """The capability of the room, as a mask."""
    inherited: Inherited
    """What commands get, whatever somebody changed about this process since."""

    def serve(self) -> None:
        """Do what comes on the line until that is closed."""
        wakeup, trigger = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(trigger, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self.line, select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        if self.own_line is not None:
            poll.register(self.own_line, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if wakeup in ready:
                os.read(wakeup, 4096)
                self._reap()
            if self.own_line is not None and self.own_line.fileno() in ready:
                received = receive(self.own_line)
                if received is None:
                    return
                send(self.own_line, do_errand(*received))
            if self.line.fileno() in ready:
                received = receive(self.line)
                if received is None:
                    return
                self._do(*received)

    def _do(self, request: dict[str, Any], files: list[int]) -> None:
        if request["op"] == "run":
            self._launch(request, files)
            return
        answer = do_errand(request, files)
        # Before the answer: whoever asks again at once finds it free.
        send(self.line, {})
        send(self.channel, answer)

    def _launch(self, request: dict[str, Any], files: list[int]) -> None:
        def tell(sentence: str) -> None:
            send(self.channel, {"id": request["id"], "error": sentence})

        try:
            self.inherited.restore()
            pid = launch(command_of(request["command"]), files[0], self.room, tell)
            send(self.line, {"pid": pid})
        except UnknownUserError as error:
            send(self.line, {})
            tell(str(error))
        except OSError as error:
            send(self.line, {})
            send(self.channel, sentence_of(request["id"], error))
        finally:
            close_all(files)

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            is_plain = ended.si_code == os.CLD_EXITED
            code = ended.si_status if is_plain else 128 + ended.si_status
            # Told before it is buried: were this process killed in between, PID 1 would bury it.
            send(self.line, {"ended": ended.si_pid, "code": code})
            os.waitpid(ended.si_pid, 0)


def code_of(status: int) -> int:
    """The return code of a process that ended: 128 + signal for one that was killed."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
