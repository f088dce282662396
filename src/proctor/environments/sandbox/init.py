"""PID 1 of a sandbox: starts what the runner asks for, reaps what is left, opens verifiers' rooms.

It reads nothing of the sandbox and loads nothing from it. Commands and operations are children that
gave up its rights before they touch anything. The kernel keeps PID 1 alive whatever is sent to it
from inside, and ends the whole sandbox with it; it ends when the runner's end of the channel is
closed.
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
from proctor.environments.sandbox.command import become_command, prepare_launches
from proctor.environments.sandbox.inherited import Inherited, read_inherited
from proctor.environments.sandbox.pausing import Holder
from proctor.environments.sandbox.processes import find_living, read_stat
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
from proctor.environments.sandbox.workers import Duty, Worker, code_of, do_errand, sentence_of

# Opening a verifier's room: a mount namespace in which some directories are new. For PID 1


_PLACE = "/sys"
"""A mount point, which nobody inside can replace by a link, with nothing in it."""


def open_room(root: Root, home: int, number: int, fresh: Sequence[str]) -> int:
    """A mount namespace in which the directories of `fresh` are new, as an open file.

    `home` is the one to come back to.

    Raises:
        OSError: one of them is not guarded, or it cannot be made.
    """
    strange = [path for path in fresh if path not in root.guarded]
    if strange:
        raise OSError(errno.EINVAL, "not one of the blueprint's guarded directories", strange[0])
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
    """The place for rooms, mounted in this namespace for a moment.

    Many kernels copy only what is mounted. It can be moved there once: a copy takes its place.
    """
    attach_tree(root.rooms_fd, _PLACE)
    try:
        again = clone_tree(root.rooms_fd)
        try:
            yield
        finally:
            os.dup2(again, root.rooms_fd, inheritable=False)
            os.close(again)
    finally:
        unmount(_PLACE)


def _new_directory(root: Root, name: str) -> int:
    """A new directory in the place for rooms, as a mount that is not yet anywhere."""
    # There already, and empty, where the scratch served another sandbox before.
    with suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=root.rooms_fd)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root.rooms_fd)
    try:
        os.fchmod(fd, 0o777)
        return clone_tree(fd)
    finally:
        os.close(fd)


# Process groups of a sandbox, seen by its PID 1: signal one, tell whether it is dead, find one


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal a group, or a process that has not come to lead one yet; the dead are passed over.

    A process whose first thread has ended is signalled like any other.
    """
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        try:
            os.kill(leader, number)
        except ProcessLookupError:
            return


def is_alive(leader: int) -> bool:
    """Whether a thread is left of a group, or of a process that is to lead one; zombies are not."""
    return any(_belongs(name, leader) for name in os.listdir("/proc") if name.isdecimal())


def _belongs(pid: str, leader: int) -> bool:
    try:
        fields = read_stat(f"/proc/{pid}")[1]
    except OSError:
        # It ended while we looked.
        return False
    return leader in (int(pid), int(fields[2])) and find_living(pid, fields) is not None


def find_orphan(pipe: tuple[int, int], known: Collection[int]) -> int | None:
    """The command that writes to a pipe and whose parent died: PID 1 is its parent then."""
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            fields = read_stat(f"/proc/{pid}")[1]
            is_ours = pid not in known and (int(fields[1]), int(fields[3])) == (1, pid)
            place = find_living(pid, fields) if is_ours else None
            if place is not None and identity_of(os.stat(f"{place}/fd/1")) == pipe:
                return pid
        except OSError:
            # It ended while we looked.
            continue
    return None


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """What tells a file from all others: its device and its inode."""
    return found.st_dev, found.st_ino


_GRACE_SEC, _LOOK_AGAIN_SEC, _LOOKS = 2.0, 0.02, 5
_FAILED, _KILLED = 125, 137


@dataclass(slots=True)
class Job:
    """A child that the runner waits for."""

    id: int
    pid: int
    is_command: bool
    code: int | None = None
    """How the child ended, once it did."""
    deadline: float | None = None
    """When its group is killed; None while nobody asked for its end."""
    is_starting: bool = False
    """A worker, whose pid it has until then, is about to start it."""
    pipe: tuple[int, int] = (0, 0)
    """What a command's output goes to, as identity_of has it."""
    is_unwanted: bool = False
    """It is to end as soon as it runs."""


@dataclass(slots=True)
class Init:
    """The state of PID 1."""

    channel: socket.socket
    root: Root
    room_capability: int
    nothing: int
    """/dev/null, opened before anybody could change it."""
    home: int
    """The mount namespace of the agent."""
    wakeup: int
    inherited: Inherited
    """What its children get, whatever somebody changed about it since."""
    rooms: list[int] = field(default_factory=list)
    """The mount namespaces of verifiers' rooms; room 1 is the first."""
    jobs: dict[int, Job] = field(default_factory=dict)
    """By pid."""
    workers: dict[int, Worker] = field(default_factory=dict)
    """Who does operations, by room."""
    poll: select.poll = field(default_factory=select.poll)
    hired: set[int] = field(default_factory=set)
    """Every worker that is not yet dead, by pid."""
    strays: list[int] = field(default_factory=list)
    """Codes of children that ended while a command was being started, and that nobody told of."""
    holder: Holder = field(default_factory=Holder)


def make_init(channel: socket.socket, root: Root, room_capability: int) -> Init:
    """PID 1 with all that it opens, before anything else runs."""
    wakeup, trigger = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(trigger, warn_on_full_buffer=False)
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
    """Never load a module again: one that is found from now on would be the agent's."""
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()


def serve(init: Init, line: socket.socket) -> None:
    """Do what the runner asks for until it closes the channel; `line` is for its first worker."""
    init.poll.register(init.channel, select.POLLIN)
    init.poll.register(init.wakeup, select.POLLIN)
    with suppress(OSError):
        # Before anybody asks: the runner takes a while to hear that all is ready.
        _hire(init, 0, line)
    line.close()
    while True:
        ready = {fd for fd, _ in init.poll.poll(_patience(init))}
        if init.wakeup in ready:
            os.read(init.wakeup, 4096)
        _reap(init)
        _push_ends(init)
        _hear_workers(init, ready)
        if init.channel.fileno() in ready:
            received = receive(init.channel)
            if received is None:
                return
            _answer(init, *received)


def _hear_workers(init: Init, ready: set[int]) -> None:
    for worker in list(init.workers.values()):
        if worker.line.fileno() in ready and not _listen(init, worker):
            _dismiss(init, worker.pid)


def _listen(init: Init, worker: Worker) -> bool:
    """Hear all that a worker has said; whether it can say more."""
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
    """A command runs that a worker started."""
    job.pid, job.is_starting = pid, False
    init.jobs[pid] = job
    if job.is_unwanted:
        _end(init, job.id)


def _note_end(init: Init, pid: int, code: int) -> None:
    """A child has ended, or one of a worker."""
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
    """The command of a worker that died before it told the pid; the command may have killed it."""
    known = {*init.jobs, *init.hired}
    for _ in range(_LOOKS):
        if started := find_orphan(job.pipe, known):
            return started
        _reap(init)
        if init.strays:
            return None
        # On its way from the worker's copy to the command it cannot be told from others.
        time.sleep(_LOOK_AGAIN_SEC)
    return None


def _patience(init: Init) -> int | None:
    """How long to sleep, in milliseconds: for ever, unless a group is being ended."""
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
            # Somebody inside did that. Commands are theirs; what does operations must not hang.
            job = init.jobs.get(pid)
            if job is None or not job.is_command or job.is_starting:
                _dismiss(init, pid)
            continue
        if pid not in init.jobs and pid not in init.hired:
            init.strays.append(code_of(status))
        init.hired.discard(pid)
        _dismiss(init, pid, is_dead=True)
        _note_end(init, pid, code_of(status))


def _dismiss(init: Init, pid: int, *, is_dead: bool = False) -> None:
    """Give a worker nothing more to do, and see that it ends; what it started lives on."""
    for room, worker in list(init.workers.items()):
        if worker.pid == pid:
            _listen(init, worker)
            del init.workers[room]
            init.poll.unregister(worker.line)
            worker.line.close()
            if not is_dead:
                os.kill(pid, signal.SIGKILL)
            if not worker.is_busy and worker.last_errand is not None:
                # It said that it was free, and may not have got to the answer after that.
                sentence = "the process for it ended"
                send(init.channel, {"id": worker.last_errand, "error": sentence})


def _finish(init: Init, job: Job) -> None:
    del init.jobs[job.pid]
    if job.is_command and not job.is_starting:
        send(init.channel, {"id": job.id, "code": job.code})
    elif job.code != 0:
        # One that ended well has answered itself.
        send(init.channel, {"id": job.id, "error": f"the process for it ended with {job.code}"})


def _push_ends(init: Init) -> None:
    """Kill groups whose grace is over, and tell of those that are dead."""
    for job in [job for job in init.jobs.values() if job.deadline is not None]:
        if not is_alive(job.pid):
            # Dead, and perhaps not to be reaped: the corpse of one that is traced is its tracer's.
            job.code = _KILLED if job.code is None else job.code
            _finish(init, job)
        elif job.deadline is not None and time.monotonic() >= job.deadline:
            signal_group(job.pid, signal.SIGKILL)


def _answer(init: Init, request: Message, files: list[int]) -> None:
    """Do what the runner asks for; when that fails, the runner is told and PID 1 goes on."""
    number = int(str(request["id"]))
    try:
        _do(init, number, request, files)
    except OSError as error:
        send(init.channel, sentence_of(number, error))
    except Exception as error:  # noqa: BLE001 - the end of PID 1 would be the end of the sandbox
        sentence = f"PID 1 failed at it: {type(error).__name__}: {error}"
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
                _dismiss(init, worker.pid)
        case "open_room":
            room = _open_room(init, request["fresh"])
            send(init.channel, {"id": number, "room": room})
            with suppress(OSError), socket.socket(fileno=files.pop()) as line:
                _hire(init, room, line)
        case "pause" | "resume" as op:
            n_running = init.holder.hold(_list_own(init), is_still=op == "pause")
            send(init.channel, {"id": number, "n_running": n_running})
        case _:
            _start(init, number, request, files)


def _end(init: Init, number: int) -> None:
    """Ask a job's group to end; it is killed when it does not."""
    for job in list(init.jobs.values()):
        if job.id != number or job.deadline is not None:
            continue
        job.is_unwanted = True
        if not job.is_starting:
            job.deadline = time.monotonic() + (_GRACE_SEC if job.is_command else 0)
            _dismiss(init, job.pid)
            signal_group(job.pid, signal.SIGTERM if job.is_command else signal.SIGKILL)


def _list_own(init: Init) -> set[int]:
    return init.hired | {job.pid for job in init.jobs.values() if not job.is_command}


def _start(init: Init, number: int, request: dict[str, Any], files: list[int]) -> None:
    is_command = request["op"] == "run"
    if request["op"] == "list_processes":
        request["operations"] = sorted(_list_own(init))
    room = int(request["command"]["room"] if is_command else request["room"])
    worker = init.workers.get(room) or _hire(init, room)
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
            become_command(command_of(request["command"]), files[0], init.nothing, more)
        _be_powerless(init, room)
        send(init.channel, do_errand(request, files))
        os._exit(0)
    except OSError as error:
        send(init.channel, sentence_of(number, error))
    except UnknownUserError as error:
        send(init.channel, {"id": number, "error": str(error)})
    finally:
        os._exit(_FAILED)


def _hire(init: Init, room: int, own_line: socket.socket | None = None) -> Worker:
    """A new worker for a room, with a line of its own to the runner if there is one.

    Raises:
        OSError: there is no such room, or no process can be made.
    """
    if room:
        _namespace_of(init, room)
    init.inherited.restore()
    ours, theirs = make_pair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _enter_room(init, room)
            _be_powerless(init, room)
            capability = init.room_capability if room else 0
            Duty(init.channel, theirs, own_line, capability, init.inherited).serve()
            os._exit(0)
        finally:
            os._exit(_FAILED)
    theirs.close()
    ours.setblocking(False)  # noqa: FBT003 - the name says it
    init.hired.add(pid)
    init.poll.register(ours, select.POLLIN)
    worker = init.workers[room] = Worker(pid, ours)
    return worker


def _enter_room(init: Init, room: int) -> None:
    signal.set_wakeup_fd(-1)
    os.setsid()
    if room:
        os.setns(_namespace_of(init, room))


def _be_powerless(init: Init, room: int) -> None:
    """Be a process with no more rights than a command has, that nobody can look into."""
    for worker in init.workers.values():
        worker.line.close()
    # Or a link of the agent's to /proc/self/fd/3 would lead it into the verifiers' rooms.
    close_all([init.root.rooms_fd, init.home, *init.rooms])
    name_process("proctor-worker")
    prepare_launches(init.nothing, init.room_capability if room else 0)
    # Once more: a change of rights may have set it.
    prctl(PR_SET_DUMPABLE, 0)


def _namespace_of(init: Init, room: int) -> int:
    if not 0 < room <= len(init.rooms):
        raise OSError(errno.EINVAL, f"there is no room {room}; {len(init.rooms)} were opened")
    return init.rooms[room - 1]


def _open_room(init: Init, fresh: Any) -> int:
    """A new room; its number."""
    if not init.room_capability:
        raise OSError(errno.EPERM, "this process has no capability to tell a room by")
    number = len(init.rooms) + 1
    init.rooms.append(open_room(init.root, init.home, number, fresh))
    return number
