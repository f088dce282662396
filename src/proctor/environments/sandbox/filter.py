"""A seccomp filter for all of a sandbox: what the capabilities alone would leave open.

Everybody may make a user namespace and is all-powerful in it, and keyrings belong to no namespace:
root inside would find the keys of root outside. Both are refused here, and so are a few doors into
the kernel that no task needs. No other line of defence rests on this one.
"""

import ctypes
import struct

from proctor.environments.sandbox.syscalls import PR_SET_SECCOMP, address_of, prctl

_CLONE_NEWUSER = 0x10000000
_EPERM = 1
_ENOSYS = 38
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_MODE_FILTER = 2

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_AT_NUMBER, _AT_ARCHITECTURE, _AT_FIRST_ARGUMENT = 0, 4, 16

# Of each architecture: clone, unshare, then add_key, request_key, keyctl, bpf, perf_event_open.
_TABLES = {
    0xC000003E: (56, 272, (248, 249, 250, 321, 298)),
    0x40000003: (120, 310, (286, 287, 288, 357, 336)),
    0xC00000B7: (220, 97, (217, 218, 219, 280, 241)),
    0x40000028: (120, 337, (309, 310, 311, 386, 364)),
}
_X32_BIT = 0x40000000
_CLONE3 = 435
# io_uring_setup, io_uring_enter, io_uring_register; since 2019 a number is the same everywhere.
_EVERYWHERE = (425, 426, 427)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int, errno: int) -> list[bytes]:
    return [_line(_JUMP_IF_EQUAL, number, 0, 1), _line(_RETURN, _ERRNO | errno)]


def _refuse_user_namespace(number: int) -> list[bytes]:
    return [
        _line(_JUMP_IF_EQUAL, number, 0, 4),
        _line(_LOAD, _AT_FIRST_ARGUMENT),
        _line(_JUMP_IF_SET, _CLONE_NEWUSER, 0, 1),
        _line(_RETURN, _ERRNO | _EPERM),
        _line(_RETURN, _ALLOW),
    ]


def _table(architecture: int) -> list[bytes]:
    """The lines for one architecture, entered with the architecture loaded."""
    clone, unshare, refused = _TABLES[architecture]
    lines = [_line(_LOAD, _AT_NUMBER), *_refuse(_CLONE3, _ENOSYS)]
    lines += [_line(_JUMP_IF_SET, _X32_BIT, 0, 1), _line(_RETURN, _ERRNO | _ENOSYS)]
    for number in (*refused, *_EVERYWHERE):
        lines += _refuse(number, _EPERM)
    lines += _refuse_user_namespace(clone) + _refuse_user_namespace(unshare)
    lines.append(_line(_RETURN, _ALLOW))
    return [_line(_JUMP_IF_EQUAL, architecture, 0, len(lines)), *lines]


def _program() -> bytes:
    lines = [_line(_LOAD, _AT_ARCHITECTURE)]
    for architecture in _TABLES:
        lines += _table(architecture)
    lines.append(_line(_RETURN, _ERRNO | _ENOSYS))
    return b"".join(lines)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_void_p))


_LINES = _program()
_BUFFER = ctypes.create_string_buffer(_LINES, len(_LINES))
_PROGRAM = _FilterProgram(len(_LINES) // 8, address_of(_BUFFER))


def filter_system_calls() -> None:
    """Refuse them from now on, to this process and all it starts; no_new_privs has to be set."""
    prctl(PR_SET_SECCOMP, _MODE_FILTER, address_of(_PROGRAM))
