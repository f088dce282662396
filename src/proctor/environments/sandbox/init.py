"""PID 1 of a sandbox: starts commands and operations, reaps processes, opens verifiers' rooms.

It reads no file of the sandbox and imports nothing from it. Commands and operations run in children
that drop its privileges first. The kernel protects PID 1 from signals sent inside the sandbox, and
kills the whole sandbox when it ends, which it does when the runner closes its end of the channel.
"""

import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from proctor.environments.sandbox.blueprint import command_of
from proctor.environments.sandbox.channel import Message, close_all, make_pair, receive, send
from proctor.environments.sandbox.command import (
    Inherited,
    become_command,
    prepare_launches,
    read_inherited,
)
from proctor.environments.sandbox.processes import Holder, find_living, read_stat
from proctor.environments.sandbox.rootfs import Root
from proctor.environments.sandbox.syscalls import (
    PR_SET_DUMPABLE,
    attach_tree,
    clone_tree,
    name_process,
    prctl,
    unmount,
)
from proctor.environments.sandbox.users import UnknownUserError
from proctor.environments.sandbox.workers import Duty, Worker, code_of, do_operation, sentence_of

# Verifiers' rooms: mount namespaces in which some directories are new


# An empty mount point, so no process inside can replace it by a symlink.
_PLACE = "/sys"


def open_room(root: Root, home: int, number: int, fresh: Sequence[str]) -> int:
    """Make a mount namespace in which the directories `fresh` are new; return it as an open file.

    `home` is the namespace to return to.

    Raises:
        OSError: one of them is not guarded, or the namespace cannot be made.
    """
    unguarded = [path for path in fresh if path not in root.guarded]
    if unguarded:
        raise OSError(errno.EINVAL, "not one of the blueprint's guarded directories", unguarded[0])
    trees: dict[str, int] = {}
    os.unshare(os.CLONE_NEWNS)
    try:
        with _rooms_mounted(root):
            for n, path in enumerate(fresh):
                trees[path] = _new_directory(root, f"{number}.{n}")
        for path, tree in trees.items():
            attach_tree(tree, path)
        return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.setns(home, os.CLONE_NEWNS)
        close_all(list(trees.values()))


@contextmanager
def _rooms_mounted(root: Root) -> Iterator[None]:
    """Mount the directory of rooms in this namespace, temporarily."""
    # Many kernels can clone only a tree that is mounted. A detached tree can be attached only
    # once, so a clone of it is kept for the next room.
    attach_tree(root.rooms_fd, _PLACE)
    try:
        spare = clone_tree(root.rooms_fd)
        try:
            yield
        finally:
            os.dup2(spare, root.rooms_fd, inheritable=False)
            os.close(spare)
    finally:
        unmount(_PLACE)


def _new_directory(root: Root, name: str) -> int:
    """Make a directory for a room; return it as a detached mount."""
    # It exists already, and is empty, if the scratch was used by another sandbox before.
    with suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=root.rooms_fd)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root.rooms_fd)
    try:
        os.fchmod(fd, 0o777)
        return clone_tree(fd)
    finally:
        os.close(fd)


# Process groups of the sandbox


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal a group, or a process that does not lead one yet; ignore dead ones."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        try:
            os.kill(leader, number)
        except ProcessLookupError:
            return


def is_alive(leader: int) -> bool:
    """Whether a group, or a process that is to lead one, has a thread that is not a zombie."""
    return any(_belongs(name, leader) for name in os.listdir("/proc") if name.isdecimal())


def _belongs(pid: str, leader: int) -> bool:
    try:
        fields = read_stat(f"/proc/{pid}")[1]
    except OSError:
        # It ended in the meantime.
        return False
    return leader in (int(pid), int(fields[2])) and find_living(pid, fields) is not None


def find_orphan(pipe: tuple[int, int], known: Collection[int]) -> int | None:
    """Find the command that writes to a pipe and whose parent died, so that PID 1 adopted it."""
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            fields = read_stat(f"/proc/{pid}")[1]
            is_ours = pid not in known and (int(fields[1]), int(fields[3])) == (1, pid)
            place = find_living(pid, fields) if is_ours else None
            if place is not None and identity_of(os.stat(f"{place}/fd/1")) == pipe:
                return pid
        except OSError:
            # It ended in the meantime.
            continue
    return None


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """Return device and inode, which identify a file."""
    return found.st_dev, found.st_ino


# Seconds from SIGTERM to SIGKILL, seconds between looks at /proc, and how many of these.
_GRACE_SEC, _LOOK_AGAIN_SEC, _LOOKS = 2.0, 0.02, 5
# As docker and shells report them: not started, and 128 + SIGKILL.
_FAILED, _KILLED = 125, 137


@dataclass(slots=True)
class Job:
    """A command or operation that the runner waits for."""

    id: int
    pid: int
    is_command: bool
    code: int | None = None
    """Exit code, once it has ended."""
    deadline: float | None = None
    """When its group is killed; None unless the runner asked to end it."""
    is_starting: bool = False
    """A worker is about to start it; until then `pid` is the worker's."""
    pipe: tuple[int, int] = (0, 0)
    """Identity of the pipe for a command's output."""
    is_unwanted: bool = False
    """End it as soon as it has started."""


@dataclass(slots=True)
class Init:
    """The state of PID 1."""

    channel: socket.socket
    root: Root
    room_capability: int
    nothing: int
    """/dev/null, opened before any process inside could replace it."""
    home: int
    """The mount namespace of the agent."""
    wakeup: int
    inherited: Inherited
    """Process attributes that children start with, even if a process inside changed ours."""
    rooms: list[int] = field(default_factory=list)
    """The mount namespaces of verifiers' rooms; room 1 is the first."""
    jobs: dict[int, Job] = field(default_factory=dict)
    """By pid."""
    workers: dict[int, Worker] = field(default_factory=dict)
    """Workers, by room."""
    poll: select.poll = field(default_factory=select.poll)
    worker_pids: set[int] = field(default_factory=set)
    """Pids of all workers that are not dead yet."""
    strays: list[int] = field(default_factory=list)
    """Exit codes of unknown children that ended while a command was being started."""
    holder: Holder = field(default_factory=Holder)


def make_init(channel: socket.socket, root: Root, room_capability: int) -> Init:
    """Make the state of PID 1 and open its files, before anything else runs in the sandbox."""
    wakeup, trigger = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(trigger, warn_on_full_buffer=False)
    # The wakeup descriptor is written only for signals that have a handler.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return Init(
        channel=channel,
        root=root,
        room_capability=room_capability,
        nothing=os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC),
        home=os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC),
        wakeup=wakeup,
        inherited=read_inherited(),
    )


def forget_imports() -> None:
    """Disable imports: from now on a module could be one that the agent wrote."""
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()


def serve(init: Init, line: socket.socket) -> None:
    """Serve the runner until it closes the channel; `line` is for the first worker."""
    init.poll.register(init.channel, select.POLLIN)
    init.poll.register(init.wakeup, select.POLLIN)
    with suppress(OSError):
        # Ahead of the first request, while the runner is still waking up.
        _start_worker(init, 0, line)
    line.close()
    while True:
        ready = {fd for fd, _ in init.poll.poll(_poll_timeout(init))}
        if init.wakeup in ready:
            os.read(init.wakeup, 4096)
        _reap(init)
        for job in [job for job in init.jobs.values() if job.deadline is not None]:
            if not is_alive(job.pid):
                # It may never be reaped here: a traced process is reaped by its tracer first.
                job.code = _KILLED if job.code is None else job.code
                _finish(init, job)
            elif job.deadline is not None and time.monotonic() >= job.deadline:
                signal_group(job.pid, signal.SIGKILL)
        for worker in list(init.workers.values()):
            if worker.line.fileno() in ready and not _read_worker(init, worker):
                _stop_worker(init, worker.pid)
        if init.channel.fileno() in ready:
            received = receive(init.channel)
            if received is None:
                return
            _answer(init, *received)


def _read_worker(init: Init, worker: Worker) -> bool:
    """Read all messages of a worker; return whether more can follow."""
    while True:
        try:
            received = receive(worker.line)
        except BlockingIOError:
            return True
        except (OSError, ValueError):
            return False
        if received is None:
            return False
        said = received[0]
        if "ended" in said:
            _note_end(init, int(str(said["ended"])), int(str(said["code"])))
            continue
        worker.is_busy = False
        job = init.jobs.pop(worker.pid, None)
        if job and "pid" in said:
            _note_start(init, job, int(str(said["pid"])))


def _note_start(init: Init, job: Job, pid: int) -> None:
    """Record that a worker has started a command."""
    job.pid, job.is_starting = pid, False
    init.jobs[pid] = job
    if job.is_unwanted:
        _end(init, job.id)


def _note_end(init: Init, pid: int, code: int) -> None:
    """Record that a child, or a child of a worker, has ended."""
    if job := init.jobs.get(pid):
        if job.is_starting and (started := _find_started(init, job)):
            del init.jobs[pid]
            _note_start(init, job, started)
            return
        job.code = code
        if job.is_starting and len(init.strays) == 1:
            job.code, job.is_starting = init.strays[0], False
        if job.deadline is None:
            _finish(init, job)


def _find_started(init: Init, job: Job) -> int | None:
    """Find the command of a worker that died before it reported the pid.

    The command itself may have killed it.
    """
    known = {*init.jobs, *init.worker_pids}
    for _ in range(_LOOKS):
        if started := find_orphan(job.pipe, known):
            return started
        _reap(init)
        if init.strays:
            return None
        # Between fork and exec, the command looks like any other copy of the worker.
        time.sleep(_LOOK_AGAIN_SEC)
    return None


def _poll_timeout(init: Init) -> int | None:
    """Return how long to poll, in milliseconds: without limit, unless a group is being ended."""
    ending = any(job.deadline is not None for job in init.jobs.values())
    return int(_LOOK_AGAIN_SEC * 1000) if ending else None


def _reap(init: Init) -> None:
    if not any(job.is_starting for job in init.jobs.values()):
        init.strays.clear()
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            # Stopped by a process inside. It may stop commands, but operations must not hang.
            job = init.jobs.get(pid)
            if job is None or not job.is_command or job.is_starting:
                _stop_worker(init, pid)
            continue
        if pid not in init.jobs and pid not in init.worker_pids:
            init.strays.append(code_of(status))
        init.worker_pids.discard(pid)
        _stop_worker(init, pid, is_dead=True)
        _note_end(init, pid, code_of(status))


def _stop_worker(init: Init, pid: int, *, is_dead: bool = False) -> None:
    """Kill a worker and forget it; the commands it started go on."""
    for room, worker in list(init.workers.items()):
        if worker.pid == pid:
            _read_worker(init, worker)
            del init.workers[room]
            init.poll.unregister(worker.line)
            worker.line.close()
            if not is_dead:
                os.kill(pid, signal.SIGKILL)
            if not worker.is_busy and worker.last_operation is not None:
                # It reports that it is free before it sends its answer, so the answer may be lost.
                sentence = "the process for it ended"
                send(init.channel, {"id": worker.last_operation, "error": sentence})


def _finish(init: Init, job: Job) -> None:
    del init.jobs[job.pid]
    if job.is_command and not job.is_starting:
        send(init.channel, {"id": job.id, "code": job.code})
    elif job.code != 0:
        # An operation that succeeded has sent its own answer.
        send(init.channel, {"id": job.id, "error": f"the process for it ended with {job.code}"})


def _answer(init: Init, request: Message, files: list[int]) -> None:
    """Handle a request of the runner; errors are reported to it, and PID 1 goes on."""
    number = int(str(request["id"]))
    try:
        _do(init, number, request, files)
    except OSError as error:
        send(init.channel, sentence_of(number, error))
    except Exception as error:  # noqa: BLE001 - the end of PID 1 would be the end of the sandbox
        sentence = f"PID 1 failed: {type(error).__name__}: {error}"
        send(init.channel, {"id": number, "error": sentence})
    finally:
        close_all(files)


def _do(init: Init, number: int, request: Message, files: list[int]) -> None:
    match request["op"]:
        case "end":
            _end(init, number)
        case "lost":
            send(init.channel, {"id": number, "error": "the process for it ended"})
        case "dismiss":
            if worker := init.workers.get(int(str(request["room"]))):
                _stop_worker(init, worker.pid)
        case "open_room":
            room = _open_room(init, request["fresh"])
            send(init.channel, {"id": number, "room": room})
            with suppress(OSError), socket.socket(fileno=files.pop()) as line:
                _start_worker(init, room, line)
        case "pause" | "resume" as op:
            n_running = init.holder.hold(_list_own(init), is_still=op == "pause")
            is_holding = init.holder.paused is not None
            send(init.channel, {"id": number, "n_running": n_running, "is_holding": is_holding})
        case _:
            _start(init, number, request, files)


def _end(init: Init, number: int) -> None:
    """Ask a job's process group to end; it is killed if it does not."""
    for job in list(init.jobs.values()):
        if job.id != number or job.deadline is not None:
            continue
        job.is_unwanted = True
        if not job.is_starting:
            job.deadline = time.monotonic() + (_GRACE_SEC if job.is_command else 0)
            _stop_worker(init, job.pid)
            signal_group(job.pid, signal.SIGTERM if job.is_command else signal.SIGKILL)


def _list_own(init: Init) -> set[int]:
    return init.worker_pids | {job.pid for job in init.jobs.values() if not job.is_command}


def _start(init: Init, number: int, request: dict[str, Any], files: list[int]) -> None:
    is_command = request["op"] == "run"
    if request["op"] == "list_processes":
        request["operations"] = sorted(_list_own(init))
    room = int(request["command"]["room"] if is_command else request["room"])
    worker = init.workers.get(room) or _start_worker(init, room)
    if "alone" not in request and worker.hand(request, files):
        job = init.jobs[worker.pid] = Job(number, worker.pid, is_command, is_starting=is_command)
        if is_command:
            job.pipe = identity_of(os.fstat(files[0]))
        return
    init.inherited.restore()
    pid = os.fork()
    if pid:
        init.jobs[pid] = Job(number, pid, is_command)
        return
    try:
        _enter_room(init, room)
        if is_command:
            more = init.room_capability if room else 0
            output, stdin = files[0], (files[1] if len(files) > 1 else init.nothing)
            become_command(command_of(request["command"]), output, stdin, more)
        _drop_privileges(init, room)
        send(init.channel, do_operation(request, files))
        os._exit(0)
    except OSError as error:
        send(init.channel, sentence_of(number, error))
    except UnknownUserError as error:
        send(init.channel, {"id": number, "error": str(error)})
    finally:
        os._exit(_FAILED)


def _start_worker(init: Init, room: int, own_line: socket.socket | None = None) -> Worker:
    """Start a worker for a room; `own_line` connects it to the runner directly."""
    if room:
        _namespace_of(init, room)
    init.inherited.restore()
    ours, theirs = make_pair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _enter_room(init, room)
            _drop_privileges(init, room)
            capability = init.room_capability if room else 0
            Duty(init.channel, theirs, own_line, capability, init.inherited).serve()
            os._exit(0)
        finally:
            os._exit(_FAILED)
    theirs.close()
    ours.setblocking(False)  # noqa: FBT003 - the name says it
    init.worker_pids.add(pid)
    init.poll.register(ours, select.POLLIN)
    worker = init.workers[room] = Worker(pid, ours)
    return worker


def _enter_room(init: Init, room: int) -> None:
    signal.set_wakeup_fd(-1)
    os.setsid()
    if room:
        os.setns(_namespace_of(init, room))


def _drop_privileges(init: Init, room: int) -> None:
    """Drop all privileges that a command does not have, and protect this process from ptrace."""
    for worker in init.workers.values():
        worker.line.close()
    # Otherwise a symlink to /proc/self/fd/3 would lead an operation into the verifiers' rooms.
    close_all([init.root.rooms_fd, init.home, *init.rooms])
    name_process("proctor-worker")
    prepare_launches(init.nothing, init.room_capability if room else 0)
    # Again, because a change of credentials can reset it.
    prctl(PR_SET_DUMPABLE, 0)


def _namespace_of(init: Init, room: int) -> int:
    if not 0 < room <= len(init.rooms):
        raise OSError(errno.EINVAL, f"there is no room {room}; {len(init.rooms)} were opened")
    return init.rooms[room - 1]


def _open_room(init: Init, fresh: Any) -> int:
    """Open a room; return its number."""
    if not init.room_capability:
        raise OSError(errno.EPERM, "PID 1 has no capability that could mark a room's processes")
    number = len(init.rooms) + 1
    init.rooms.append(open_room(init.root, init.home, number, fresh))
    return number
