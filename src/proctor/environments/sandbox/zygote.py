"""The small process from which every sandbox's PID 1 is forked.

    python -I -S -c … LOCATION FD      started by the runner, once; FD is a socket to it

It has no secrets and no open files of the runner. When its socket closes, it and its sandboxes end.
Imports little, and only from the standard library, because each fork copies its memory.
"""

import gc
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from proctor.environments.sandbox.blueprint import Blueprint, Network, blueprint_of
from proctor.environments.sandbox.channel import close_all, make_pair, receive, send
from proctor.environments.sandbox.init import forget_imports, make_init, serve
from proctor.environments.sandbox.premade import premake
from proctor.environments.sandbox.privileges import (
    bound_init,
    is_all_powerful,
    reduce_init,
    room_capability,
)
from proctor.environments.sandbox.rootfs import (
    PLAIN,
    Premade,
    StepError,
    build_root,
    mount_overlay,
    step,
)
from proctor.environments.sandbox.routes import (
    Prefix,
    bring_loopback_up,
    find_own_addresses,
    listen_for_models,
    make_local,
    make_unreachable,
)
from proctor.environments.sandbox.syscalls import (
    MS_REC,
    MS_SLAVE,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    clone,
    hide_arguments,
    mount,
    name_process,
    prctl,
)
from proctor.environments.sandbox.users import (
    MapError,
    become_root,
    hint_on_namespaces,
    map_by_tools,
    map_range,
    map_self,
)

_CONNECTED = (Network.SLIRP, Network.PASTA)
# Addresses that slirp4netns needs. A host that uses the same ones is not reachable through them.
_HELPERS = tuple(
    Prefix(socket.AF_INET, bytes((10, 0, 2, last)), 32)
    # slirp4netns' gateway, its resolver, and the sandbox itself.
    for last in (2, 3, 100)
)
_IPV6_FREEBIND = 78
_MOST_PROCESSES = 4096
_FAILED = 1
# Above the largest descriptor that may be open.
_MOST_FILES = 1 << 20

# Mount points of overlays that are reused by one sandbox after the other.
_KEPT: set[str] = set()


def main() -> None:
    """Serve the runner until it closes the socket."""
    runner = socket.socket(fileno=int(sys.argv[-1]))
    runner.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wakeup, trigger = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(trigger, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    if is_all_powerful():
        _forget_login()
        bound_init(room_capability())
        # A namespace for the reused overlays. MS_SLAVE: what the host unmounts is unmounted here.
        os.unshare(os.CLONE_NEWNS)
        mount("none", "/", flags=MS_REC | MS_SLAVE)
    name_process("proctor-zygote")
    # Sandboxes inherit the command line, and any process inside can read it: hide host paths.
    hide_arguments("proctor-sandbox")
    forget_imports()
    gc.collect()
    # The collector would write to every object, and forks would no longer share their memory.
    gc.freeze()
    gc.disable()
    # If the runner has ended, there is nobody to report to.
    with suppress(BrokenPipeError, ConnectionResetError):
        _serve(runner, wakeup)


def _forget_login() -> None:
    """Let processes of sandboxes set the user of their login, as those of services can.

    The kernel's audit lets a process set it once, so that a login inside would fail if proctor was
    started from one.
    """
    with suppress(OSError), open("/proc/self/loginuid", "w") as file:
        file.write("4294967295")


def _serve(runner: socket.socket, wakeup: int) -> None:
    poll = select.poll()
    poll.register(runner, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wakeup in ready:
            os.read(wakeup, 4096)
            _reap(runner)
        if runner.fileno() in ready:
            received = receive(runner)
            if received is None:
                return
            request, files = received
            _spawn(runner, request, files)


def _reap(runner: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        send(runner, {"gone": pid, "code": os.waitstatus_to_exitcode(status)})


def _spawn(runner: socket.socket, request: dict[str, Any], files: list[int]) -> None:
    number, blueprint = request["spawn"], blueprint_of(request["blueprint"])
    flags = os.CLONE_NEWNS | os.CLONE_NEWPID | signal.SIGCHLD
    owner = None if is_all_powerful() else (os.getuid(), os.getgid())
    if owner or blueprint.first_id:
        flags |= os.CLONE_NEWUSER
    from_zygote, to_init = make_pair()
    try:
        # If the host's mounts propagate, it is here already.
        if blueprint.storage and not os.path.ismount(blueprint.writable):
            with step("mounting the storage"):
                mount(blueprint.storage, blueprint.writable, "ext4", PLAIN)
        if blueprint.first_id:
            # The fork inherits the working directory; with its mapped ids it could not enter it.
            with step("entering the sandbox's scratch"):
                os.chdir(blueprint.root)
        else:
            for part in blueprint.parts:
                if part.mounted and part.mounted not in _KEPT:
                    mount_overlay(part, part.mounted, in_user_namespace=False)
                    _KEPT.add(part.mounted)
        pid = _clone_inside(blueprint, flags)
        if pid == 0:
            to_init.close()
            _become_init(blueprint, files, from_zygote, owner)
        handle = os.pidfd_open(pid)
        try:
            send(runner, {"spawned": number, "pid": pid}, (handle,))
        finally:
            os.close(handle)
        _continue_fork(blueprint, pid, to_init, is_ordinary=owner is not None)
    except StepError as error:
        send(runner, {"spawned": number, "error": str(error)})
    except OSError as error:
        # From before the fork, or from the fork itself.
        sentence = f"making namespaces: {error.strerror}, errno {error.errno}{hint_on_namespaces()}"
        send(runner, {"spawned": number, "error": sentence})
    finally:
        os.chdir("/")
        from_zygote.close()
        to_init.close()
        close_all(files)


def _clone_inside(blueprint: Blueprint, flags: int) -> int:
    """Fork into new namespaces and control groups of version 1. Returns 0 in the child."""
    # The fork inherits the groups. A process of one thread may move itself through `tasks` at
    # once; before any other move the kernel waits, often for 15 ms, and until then no process of
    # the machine can fork.
    former: list[str] = []
    pid = -1
    try:
        for group in blueprint.cgroups:
            if _is_version_1(group):
                _join(group, 0, "tasks")
                former.append(os.path.dirname(group))
        pid = _clone_as(blueprint.first_id, flags)
    finally:
        if pid:
            for group in former:
                _join(group, 0, "tasks")
    return pid


def _clone_as(owner: int, flags: int) -> int:
    """Fork into new namespaces that belong to `owner`, unless it is 0. Returns 0 in the child."""
    # The kernel charges resources of a user namespace to its owner too: with the same owner, one
    # sandbox could exhaust the limits of another.
    if not owner:
        return clone(flags)
    os.seteuid(owner)
    try:
        pid = clone(flags)
    except OSError:
        os.seteuid(0)
        raise
    if pid:
        os.seteuid(0)
    return pid


def _continue_fork(
    blueprint: Blueprint, pid: int, to_init: socket.socket, *, is_ordinary: bool
) -> None:
    """Map the ids of a waiting fork, make the mounts that it cannot make, and let it continue."""
    made: tuple[int, ...] = ()
    try:
        if is_ordinary and blueprint.subordinate:
            map_by_tools(pid, blueprint.subordinate)
        elif blueprint.first_id:
            with step("mapping users"):
                map_range(pid, blueprint.first_id)
            _join_others(blueprint.cgroups, pid)
            premade = premake(blueprint, pid)
            made = (*premade.parts, premade.rooms, premade.devices)
        send(to_init, {}, made)
    except (MapError, StepError) as error:
        # The fork passes the error on to the runner.
        send(to_init, {"error": str(error)})
    finally:
        close_all(made)


def _become_init(
    blueprint: Blueprint,
    files: list[int],
    from_zygote: socket.socket,
    owner: tuple[int, int] | None,
) -> NoReturn:
    """Turn a fork into PID 1 of a sandbox. Never returns to the zygote's loop."""
    channel, line = (socket.socket(fileno=fd) for fd in files)
    try:
        _close_others(channel.fileno(), line.fileno(), from_zygote.fileno())
        # Before waiting for the zygote, so that this process ends if the zygote dies.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        name_process("proctor-init")
        premade = _enter(blueprint, from_zygote, owner)
        namespaces = _open_namespaces(blueprint, owner)
        bound = [*_bind_ports(blueprint.host_ports), *_listen(blueprint.model_port)]
        root = build_root(blueprint, premade, in_user_namespace=owner is not None)
        with step("giving up privileges"):
            room = room_capability()
            if owner:
                _limit_processes()
            if owner or premade:
                # A new user namespace resets the bounding set; otherwise the zygote's is inherited.
                bound_init(room)
            reduce_init(room)
            prctl(PR_SET_DUMPABLE, 0)
            # Again, because a change of credentials can clear it.
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        init = make_init(channel, root, room)
        handed = (*namespaces, *(each.detach() for each in bound))
        send(channel, {"ready": True}, handed)
        close_all(handed)
        serve(init, line)
    except StepError as error:
        send(channel, {"error": str(error)})
    except Exception as error:  # noqa: BLE001 - the fork's own boundary: it reports and ends
        send(channel, {"error": f"PID 1 failed: {type(error).__name__}: {error}"})
    finally:
        os._exit(_FAILED)


def _close_others(*kept: int) -> None:
    """Close all other files, and point 0, 1 and 2 to /dev/null."""
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    first = 3
    for fd in (*sorted(kept), _MOST_FILES):
        os.closerange(first, fd)
        first = fd + 1


def _enter(
    blueprint: Blueprint, from_zygote: socket.socket, owner: tuple[int, int] | None
) -> Premade | None:
    """Enter the control groups and namespaces; return the mounts that the zygote made."""
    if not blueprint.first_id:
        _join_others(blueprint.cgroups, 0)
    # Return the mounts that it made.
    heard = receive(from_zygote)
    from_zygote.close()
    if heard is None:
        raise StepError("the zygote has ended")
    message, made = heard
    if "error" in message:
        raise StepError(str(message["error"]))
    if owner and not blueprint.subordinate:
        with step("mapping users"):
            map_self(*owner)
    if blueprint.first_id:
        with step("becoming root"):
            become_root()
    _unshare(blueprint.network)
    os.setsid()
    with step("naming the host"):
        socket.sethostname(blueprint.hostname)
    if not blueprint.first_id:
        return None
    *parts, rooms, devices = made
    return Premade(tuple(parts), rooms, devices)


def _join_others(groups: Sequence[str], pid: int) -> None:
    """Move a process into the control groups that it did not inherit; 0 is this one."""
    for group in groups:
        if not _is_version_1(group):
            _join(group, pid, "cgroup.procs")


def _is_version_1(group: str) -> bool:
    return os.path.exists(f"{group}/tasks")


def _join(group: str, pid: int, name: str) -> None:
    with step(f"entering the control group {group}"), open(f"{group}/{name}", "w") as file:
        file.write(str(pid))


def _unshare(network: Network) -> None:
    flags = os.CLONE_NEWIPC | os.CLONE_NEWUTS | os.CLONE_NEWCGROUP
    hidden: list[Prefix] = []
    if network != Network.HOST:
        flags |= os.CLONE_NEWNET
    if network in _CONNECTED:
        with step("finding the host's addresses"):
            # Possible here because this process is still in the host's network namespace.
            hidden = [prefix for prefix in find_own_addresses() if prefix not in _HELPERS]
    with step("making namespaces"):
        os.unshare(flags)
    if network != Network.HOST:
        with step("bringing loopback up"):
            bring_loopback_up()
    with step("refusing the host's addresses"):
        make_unreachable(hidden)


def _limit_processes() -> None:
    """Limit the processes of an unprivileged user's sandbox as a control group would."""
    # RLIMIT_NPROC counts per user namespace, and before Linux 5.14 per user. It does not apply to
    # root, whose sandboxes get a control group instead.
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = _MOST_PROCESSES if most == resource.RLIM_INFINITY else min(most, _MOST_PROCESSES)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


def _open_namespaces(blueprint: Blueprint, owner: tuple[int, int] | None) -> tuple[int, ...]:
    """Open the namespaces that a helper on the host needs to connect the network."""
    # Opened here, because PID 1 is made undumpable later and its /proc files become inaccessible.
    if blueprint.network not in _CONNECTED:
        return ()
    names = ("net", "user") if owner else ("net",)
    with step("opening the network's namespace"):
        return tuple(os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names)


def _bind_ports(ports: Sequence[tuple[str, int]]) -> list[socket.socket]:
    """Bind the host's addresses and ports for the relay, before any other process can."""
    bound = []
    for address, port in ports:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with step(f"opening port {port} of {address}"):
            packed = socket.inet_pton(family, address)
            make_local([Prefix(family, packed, 8 * len(packed))])
            one = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            # So that servers of the tests can use the port while the relay does not listen.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # No interface has the address; it is only a local route.
                one.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
            one.bind((address, port))
            bound.append(one)
    return bound


def _listen(model_port: int) -> list[socket.socket]:
    """Listen on the port of the model gateway, if there is one."""
    if not model_port:
        return []
    with step(f"opening port {model_port} for models"):
        return [listen_for_models(model_port)]
