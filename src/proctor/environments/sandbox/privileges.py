"""Capabilities of the processes of a sandbox.

    COMMAND    for root in commands and transfers: enough for apt, chown, su, port 80, sshd
    room       one more, harmless capability for processes in a verifier's room. The kernel does
               not let a process ptrace another that has a capability it lacks, so the agent's
               processes cannot inspect those of the room.
    INIT       for PID 1: COMMAND, the room's, and what it needs to open rooms

Users other than root have only the room's. No process has SYS_PTRACE; only PID 1 has SYS_ADMIN.
"""

from proctor.environments.sandbox.syscalls import (
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAP_AMBIENT_RAISE,
    PR_CAPBSET_DROP,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_SECUREBITS,
    effective_capabilities,
    prctl,
    set_capabilities,
)

CHOWN = 0
DAC_OVERRIDE = 1
FOWNER = 3
FSETID = 4
KILL = 5
SETGID = 6
SETUID = 7
SETPCAP = 8
NET_BIND_SERVICE = 10
SYS_CHROOT = 18
SYS_ADMIN = 21
LEASE = 28
SETFCAP = 31
WAKE_ALARM = 35
BLOCK_SUSPEND = 36

_COMMAND = (
    *(CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE),
    *(SYS_CHROOT, SETFCAP),
)
# Candidates for the room's capability: they give no rights inside a sandbox.
_HARMLESS = (WAKE_ALARM, LEASE, BLOCK_SUSPEND)
_MOST = 63
# SECBIT_NO_SETUID_FIXUP and its lock: changing users keeps capabilities until exec.
_NO_SETUID_FIXUP = 1 << 2 | 1 << 3


def mask_of(*capabilities: int) -> int:
    """Return capabilities as a bit mask."""
    return sum(1 << capability for capability in set(capabilities))


COMMAND = mask_of(*_COMMAND)


def is_all_powerful() -> bool:
    """Whether this process can make namespaces without a user namespace."""
    return bool(effective_capabilities() & mask_of(SYS_ADMIN))


def room_capability() -> int:
    """Return a capability of this process for rooms, as a mask; 0 if it has none of them."""
    held = effective_capabilities()
    return next((mask_of(one) for one in _HARMLESS if held & mask_of(one)), 0)


def bound_init(room: int) -> None:
    """Drop from the bounding set what PID 1 does not need. Forks inherit it."""
    keep = _init(room)
    for capability in range(_MOST + 1):
        if keep >> capability & 1:
            continue
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            # The kernel has no further capabilities.
            return


def reduce_init(room: int) -> None:
    """Drop what PID 1 does not need, irrevocably, for it and its children."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    set_capabilities(_init(room), 0)
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def _init(room: int) -> int:
    return COMMAND | room | mask_of(SETPCAP, SYS_ADMIN)


def reduce_command(room: int) -> None:
    """Drop all but COMMAND and `room`, irrevocably. Called in a child of PID 1."""
    if room:
        # Otherwise `su` in a room would drop the room's capability, and that user's processes
        # outside the room could ptrace it.
        prctl(PR_SET_SECUREBITS, _NO_SETUID_FIXUP)
    for capability in (SETPCAP, SYS_ADMIN, *_HARMLESS):
        if not room & mask_of(capability):
            prctl(PR_CAPBSET_DROP, capability)
    set_capabilities(COMMAND | room, room)


def keep_only_room(room: int) -> None:
    """Drop all but the room's capability, for users other than root."""
    set_capabilities(room, room)


def hand_down(room: int) -> None:
    """Keep the room's capability across exec, for any user."""
    for capability in _HARMLESS:
        if room & mask_of(capability):
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)
