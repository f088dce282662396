"""What processes of a sandbox may do: which capabilities, and who has which.

    COMMAND    what root has in a command and in a transfer: enough for apt, chown, su, port 80
    room       one harmless capability more, which nothing of the agent ever has. The kernel lets
               nobody look into a process that holds a capability he lacks.
    INIT       what PID 1 keeps: COMMAND, the room's, and what it takes to open rooms

Users other than root hold none, but for the room's. Never SYS_PTRACE; SYS_ADMIN for PID 1 alone.
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

_COMMAND = (CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE, SETFCAP)
_HARMLESS = (WAKE_ALARM, LEASE, BLOCK_SUSPEND)
_MOST = 63
_NO_SETUID_FIXUP = 1 << 2 | 1 << 3
"""Changing users keeps capabilities, until something is executed; and that stays so."""


def mask_of(*capabilities: int) -> int:
    """Capabilities as a mask."""
    return sum(1 << capability for capability in set(capabilities))


COMMAND = mask_of(*_COMMAND)


def is_all_powerful() -> bool:
    """Whether this process can make namespaces without a user namespace around them."""
    return bool(effective_capabilities() & mask_of(SYS_ADMIN))


def room_capability() -> int:
    """A capability for rooms that this process has, as a mask; 0 when it has none of them."""
    held = effective_capabilities()
    return next((mask_of(one) for one in _HARMLESS if held & mask_of(one)), 0)


def bound_init(room: int) -> None:
    """Let nothing that is executed from here on get more than PID 1 needs. Forks inherit it."""
    keep = _init(room)
    for capability in range(_MOST + 1):
        if keep >> capability & 1:
            continue
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            # The first number that this kernel does not know.
            return


def reduce_init(room: int) -> None:
    """Keep what PID 1 needs; for ever, and for all it starts."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    set_capabilities(_init(room), 0)
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def _init(room: int) -> int:
    return COMMAND | room | mask_of(SETPCAP, SYS_ADMIN, SYS_CHROOT)


def reduce_command(room: int) -> None:
    """Keep what root has in a command, and `room`; for ever. Called by a child of PID 1."""
    if room:
        # Or `su` in a room would give up the room's capability, and be open to all of that user.
        prctl(PR_SET_SECUREBITS, _NO_SETUID_FIXUP)
    for capability in (SETPCAP, SYS_ADMIN, SYS_CHROOT, *_HARMLESS):
        if not room & mask_of(capability):
            prctl(PR_CAPBSET_DROP, capability)
    set_capabilities(COMMAND | room, room)


def keep_only_room(room: int) -> None:
    """What another user than root keeps: the capability of the room it is in."""
    set_capabilities(room, room)


def hand_down(room: int) -> None:
    """Let what is executed next hold the room's capability whoever runs it."""
    for capability in _HARMLESS:
        if room & mask_of(capability):
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)
