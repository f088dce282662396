"""Children of PID 1 that do operations and start commands, one at a time, in one room each.

They are reused because forking PID 1 takes longer than most operations. While one is busy, further
requests get their own child. A root process inside can stop or kill a worker: PID 1 replaces it,
and its current operation fails. No process inside can ptrace it.

    runner to worker     an operation; the worker sends its answer back (router.py)
    PID 1 to worker      a request of the runner, with its files
    worker to PID 1      {}                  it is free; the runner gets the answer
                         {"pid": …}          the command has started, and the worker is free
                         {"ended", "code"}   a command that it started has ended
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
from proctor.environments.sandbox.command import Inherited, launch
from proctor.environments.sandbox.file_ops import OPERATIONS
from proctor.environments.sandbox.users import UnknownUserError


@dataclass(slots=True)
class Worker:
    """A worker, as PID 1 sees it."""

    pid: int
    line: socket.socket
    is_busy: bool = False
    last_operation: int | None = None
    """Id of its last operation; None if its last request was a command."""

    def hand(self, request: dict[str, Any], files: list[int]) -> bool:
        """Send it a request; return False if it is busy or dead."""
        if self.is_busy:
            return False
        try:
            send(self.line, request, files)
        except OSError:
            return False
        self.is_busy = True
        self.last_operation = None if request["op"] == "run" else int(request["id"])
        return True


def sentence_of(number: object, error: OSError) -> Message:
    """Return the answer for a failed request."""
    place = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or str(error)
    return {"id": number, "error": f"{place}{reason}", "errno": error.errno}


def do_operation(request: dict[str, Any], files: list[int]) -> Message:
    """Do one operation and return its answer."""
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
    """The loop of a worker process, with its connections."""

    channel: socket.socket
    """PID 1's connection to the runner, shared with all its children."""
    line: socket.socket
    """Connection to PID 1."""
    own_line: socket.socket | None
    """Direct connection to the runner, which only the first worker of a room gets."""
    room: int
    """The capability of the room, as a mask."""
    inherited: Inherited
    """Process attributes that commands start with, even if a process inside changed ours."""

    def serve(self) -> None:
        """Serve requests until a connection closes."""
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
                send(self.own_line, do_operation(*received))
            if self.line.fileno() in ready:
                received = receive(self.line)
                if received is None:
                    return
                self._do(*received)

    def _do(self, request: dict[str, Any], files: list[int]) -> None:
        if request["op"] == "run":
            self._launch(request, files)
            return
        answer = do_operation(request, files)
        # Before the answer, so that the runner's next request finds this worker free.
        send(self.line, {})
        send(self.channel, answer)

    def _launch(self, request: dict[str, Any], files: list[int]) -> None:
        def report(sentence: str) -> None:
            send(self.channel, {"id": request["id"], "error": sentence})

        try:
            self.inherited.restore()
            pid = launch(command_of(request["command"]), files[0], self.room, report)
            send(self.line, {"pid": pid})
        except UnknownUserError as error:
            send(self.line, {})
            report(str(error))
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
            # Report it before reaping it: if this process is killed in between, PID 1 adopts the
            # zombie and still learns its exit code.
            send(self.line, {"ended": ended.si_pid, "code": code})
            os.waitpid(ended.si_pid, 0)


def code_of(status: int) -> int:
    """Return the return code of a wait status: 128 + signal for a killed process."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
