"""The small process of which every sandbox's PID 1 is a fork.

    python -I -S -c … LOCATION FD      started by the runner, once; FD is a socket to it

It holds no secret and no file of the runner's. It ends when its socket closes, and its sandboxes
with it. Only the standard library, and little of it: each fork copies what is loaded here.
"""

import fcntl
import gc
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from proctor.environments.sandbox.blueprint import Blueprint, Network, blueprint_of
from proctor.environments.sandbox.channel import close_all, make_pair, receive, send
from proctor.environments.sandbox.identity import (
    MapError,
    become_root,
    hint_on_namespaces,
    map_by_tools,
    map_range,
    map_self,
)
from proctor.environments.sandbox.init import forget_imports, make_init, serve
from proctor.environments.sandbox.premade import premake
from proctor.environments.sandbox.privileges import (
    bound_init,
    is_all_powerful,
    reduce_init,
    room_capability,
)
from proctor.environments.sandbox.rootfs import (
    Premade,
    StepError,
    build_root,
    mount_overlay,
    step,
)
from proctor.environments.sandbox.routes import (
    Prefix,
    find_own_addresses,
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

_CONNECTED = (Network.SLIRP, Network.PASTA)
_HELPERS = tuple(
    Prefix(socket.AF_INET, bytes((10, 0, 2, last)), 32)
    # The gateway and the resolver that slirp4netns plays, and the sandbox itself.
    for last in (2, 3, 100)
)
"""What a sandbox needs to be connected; the host's own, if it has such, is not reached by them."""
_IPV6_FREEBIND = 78
_IFF_UP = 1
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_MOST_PROCESSES = 4096
_FAILED = 1
_MOST_FILES = 1 << 20

_KEPT: set[str] = set()
"""Where overlays are mounted that one sandbox after the other gets."""


def main() -> None:
    """Serve the runner until it closes the socket."""
    runner = socket.socket(fileno=int(sys.argv[-1]))
    runner.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wakeup, trigger = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(trigger, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    if is_all_powerful():
        bound_init(room_capability())
        # For overlays that are kept. What the host unmounts meanwhile is unmounted here too.
        os.unshare(os.CLONE_NEWNS)
        mount("none", "/", flags=MS_REC | MS_SLAVE)
    name_process("proctor-zygote")
    # Sandboxes inherit it, and everybody inside can read it: no path of the host is to be there.
    hide_arguments("proctor-sandbox")
    forget_imports()
    gc.collect()
    gc.freeze()
    gc.disable()
    # A runner that is gone asks for nothing more, and nobody is left to be told.
    with suppress(BrokenPipeError, ConnectionResetError):
        _serve(runner, wakeup)


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
    told, teller = make_pair()
    try:
        _prepare(blueprint)
        pid = _clone_as(blueprint.first_id, flags)
        if pid == 0:
            teller.close()
            _become_init(blueprint, files, told, owner)
        _tell_parentage(runner, number, pid)
        _let_go(blueprint, pid, teller, is_ordinary=owner is not None)
    except StepError as error:
        send(runner, {"spawned": number, "error": str(error)})
    except OSError as error:
        # Before the fork, or of the fork itself.
        sentence = f"making namespaces: {error.strerror}, errno {error.errno}{hint_on_namespaces()}"
        send(runner, {"spawned": number, "error": sentence})
    finally:
        os.chdir("/")
        told.close()
        teller.close()
        close_all(files)


def _prepare(blueprint: Blueprint) -> None:
    """What has to be so when a sandbox is forked."""
    if blueprint.first_id:
        # The fork inherits it, in a copy of this mount namespace, and could not get there itself.
        with step("entering the sandbox's scratch"):
            os.chdir(blueprint.root)
    else:
        _keep_overlays(blueprint)


def _clone_as(owner: int, flags: int) -> int:
    """Fork into new namespaces; 0 in the child. Their owner is `owner`, where there is one.

    What the kernel counts in a user namespace counts for its owner too: of two sandboxes with the
    same owner, one could use up what the other may have.
    """
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


def _let_go(blueprint: Blueprint, pid: int, teller: socket.socket, *, is_ordinary: bool) -> None:
    """Map the ids of a fork that waits, make what it cannot make itself, and let it go on."""
    made: tuple[int, ...] = ()
    try:
        if is_ordinary and blueprint.subordinate:
            map_by_tools(pid, blueprint.subordinate)
        elif blueprint.first_id:
            with step("mapping users"):
                map_range(pid, blueprint.first_id)
            _join(blueprint.cgroups, pid)
            premade = premake(blueprint, pid)
            made = (*premade.parts, premade.rooms, premade.devices)
        send(teller, {}, made)
    except (MapError, StepError) as error:
        # The fork hands it on to whoever waits for the sandbox.
        send(teller, {"error": str(error)})
    finally:
        close_all(made)


def _keep_overlays(blueprint: Blueprint) -> None:
    for part in blueprint.parts:
        if part.mounted and part.mounted not in _KEPT:
            mount_overlay(part, part.mounted, in_user_namespace=False)
            _KEPT.add(part.mounted)


def _tell_parentage(runner: socket.socket, number: object, pid: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        send(runner, {"spawned": number, "pid": pid}, (handle,))
    finally:
        os.close(handle)


def _become_init(
    blueprint: Blueprint, files: list[int], told: socket.socket, owner: tuple[int, int] | None
) -> NoReturn:
    """Everything that a fork of the zygote does; it never returns into the zygote's own loop."""
    channel, line = (socket.socket(fileno=fd) for fd in files)
    try:
        _close_others(channel.fileno(), line.fileno(), told.fileno())
        # Before the zygote's word is waited for: whichever way it dies, this process notices.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        name_process("proctor-init")
        premade = _enter(blueprint, told, owner)
        namespaces = _open_namespaces(blueprint, owner)
        bound = _bind_ports(blueprint.host_ports)
        root = build_root(blueprint, premade, in_user_namespace=owner is not None)
        with step("giving up privileges"):
            room = room_capability()
            if owner:
                _limit_processes()
            if owner or premade:
                # A new user namespace has no bounds; elsewhere the zygote set them, once for all.
                bound_init(room)
            reduce_init(room)
            prctl(PR_SET_DUMPABLE, 0)
            # Once more: a change of rights may have cleared it.
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        init = make_init(channel, root, room)
        handed = (*namespaces, *(each.detach() for each in bound))
        send(channel, {"ready": True}, handed)
        close_all(handed)
        serve(init, line)
    except StepError as error:
        send(channel, {"error": str(error)})
    except Exception as error:  # noqa: BLE001 - the fork's own boundary: it tells and ends
        send(channel, {"error": f"PID 1 failed: {type(error).__name__}: {error}"})
    finally:
        os._exit(_FAILED)


def _close_others(*kept: int) -> None:
    """Close everything of the zygote's; 0, 1 and 2 become nothing."""
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    first = 3
    for fd in (*sorted(kept), _MOST_FILES):
        os.closerange(first, fd)
        first = fd + 1


def _enter(
    blueprint: Blueprint, told: socket.socket, owner: tuple[int, int] | None
) -> Premade | None:
    """Enter the blueprint's control groups and its namespaces; what the zygote made for it."""
    if not blueprint.first_id:
        _join(blueprint.cgroups, 0)
    made = _hear_zygote(told)
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


def _join(groups: Sequence[str], pid: int) -> None:
    """Put a process into control groups; 0 is this one."""
    for group in groups:
        with (
            step(f"entering the control group {group}"),
            open(f"{group}/cgroup.procs", "w") as file,
        ):
            file.write(str(pid))


def _hear_zygote(told: socket.socket) -> list[int]:
    """Wait until ids are mapped; the mounts that were made."""
    heard = receive(told)
    told.close()
    if heard is None:
        raise StepError("the process that it was forked from is gone")
    message, made = heard
    if "error" in message:
        raise StepError(str(message["error"]))
    return made


def _unshare(network: Network) -> None:
    flags = os.CLONE_NEWIPC | os.CLONE_NEWUTS | os.CLONE_NEWCGROUP
    hidden: list[Prefix] = []
    if network != Network.HOST:
        flags |= os.CLONE_NEWNET
    if network in _CONNECTED:
        with step("finding the host's addresses"):
            # Here and not in the runner: this process is still in the host's own network.
            hidden = [prefix for prefix in find_own_addresses() if prefix not in _HELPERS]
    with step("making namespaces"):
        os.unshare(flags)
    if network != Network.HOST:
        with step("bringing loopback up"):
            _bring_loopback_up()
    with step("refusing the host's addresses"):
        make_unreachable(hidden)


def _limit_processes() -> None:
    """Let an ordinary user's sandbox have no more processes than a control group would.

    They are counted for each user namespace, and before Linux 5.14 for the user. Root's are not
    counted at all: there it takes a control group.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = _MOST_PROCESSES if most == resource.RLIM_INFINITY else min(most, _MOST_PROCESSES)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


def _open_namespaces(blueprint: Blueprint, owner: tuple[int, int] | None) -> tuple[int, ...]:
    """What a helper on the host needs to connect the network: that namespace, and its owner's.

    Opened here and handed out, because nobody can look into PID 1 later on.
    """
    if blueprint.network not in _CONNECTED:
        return ()
    names = ("net", "user") if owner else ("net",)
    with step("opening the network's namespace"):
        return tuple(os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names)


def _bind_ports(ports: Sequence[tuple[str, int]]) -> list[socket.socket]:
    """Take addresses and ports that are the host's for a relay, before anything else can."""
    bound = []
    for address, port in ports:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with step(f"opening port {port} of {address}"):
            packed = socket.inet_pton(family, address)
            make_local([Prefix(family, packed, 8 * len(packed))])
            one = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            # While nobody listens on it, the tests' own servers can.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # The address is a route's, and no interface has it.
                one.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
            one.bind((address, port))
            bound.append(one)
    return bound


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = bytearray(struct.pack("16sH22x", b"lo", 0))
        fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        flags = struct.unpack_from("H", request, 16)[0] | _IFF_UP
        struct.pack_into("H", request, 16, flags)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)
