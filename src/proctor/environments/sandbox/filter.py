"""The seccomp filter for commands and operations in a sandbox.

    allowed         what container engines allow by default to an unprivileged container
    checked         allowed for some arguments: clone, unshare, personality, prlimit64, socket;
                    sockets to the kernel's audit fail as on a kernel without it, because login
                    programs go on without audit, but not if it refuses their messages
    refused         EPERM: mounts, namespaces, modules, keyrings, bpf, perf, io_uring, the clock
    anything else   ENOSYS, as on a kernel without it, so that programs fall back

PID 1 needs refused calls to open verifiers' rooms, so the filter applies to its children, after
they have dropped their capabilities. It is an additional defence: no other one depends on it.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from proctor.environments.sandbox.syscalls import PR_SET_SECCOMP, address_of, prctl

_EPERM = 1
_ENOSYS = 38
_EPROTONOSUPPORT = 93
_EAFNOSUPPORT = 97
# From <linux/seccomp.h> and <linux/bpf_common.h>.
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_MODE_FILTER = 2

_LOAD, _RETURN, _JUMP = 0x20, 0x06, 0x05
_JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_SET = 0x15, 0x35, 0x45
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16

_NEW_NAMESPACES = 0x7E020000
# Only for unshare: in clone's flags, these bits are the exit signal.
_NEW_TIME_NAMESPACE = 0x80
# AF_UNIX, AF_INET, AF_INET6.
_FAMILIES = (1, 2, 10)
_NETLINK = 16
_AUDIT = 9
# PER_LINUX, PER_LINUX32, UNAME26, PER_LINUX32 with UNAME26, and the value that only queries.
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class _Table:
    """System call numbers of one architecture."""

    architecture: int
    allowed: str
    refused: str
    clone: int
    unshare: int
    personality: int
    prlimit64: int
    sockets: tuple[int, int]
    """socket and socketpair."""


# Since 2019, new calls have the same number on all architectures, so the tables agree from 424 on.
# clone3 is in none of them: its flags are in memory, which a filter cannot read, and C libraries
# fall back to clone on ENOSYS. i386's socketcall (102) also has its arguments in memory; it is
# allowed with any family, as container engines do.
_TABLES = {
    "x86_64": _Table(
        architecture=0xC000003E,
        allowed=(
            "0-40 42-52 54-55 57-102 104-133 137-138 140-152 157-162 186-211 213-226 228-235 "
            "240-245 247 251-255 257-271 273-278 280-297 299 301 303 305-307 309-311 314-319 322 "
            "324-334 424 434 436-439 441 444-449 451-456 462-466"
        ),
        refused=(
            "103 134 153-155 163-173 175-176 179 212 227 237-239 246 248-250 256 279 298 300 304 "
            "308 312-313 320-321 323 425-433 440 442-443 450"
        ),
        clone=56,
        unshare=272,
        personality=135,
        prlimit64=302,
        sockets=(41, 53),
    ),
    "i386": _Table(
        architecture=0x40000003,
        allowed=(
            "0-16 19-20 23-24 26-27 29-30 33 36-43 45-47 49-50 54-55 57 60-61 63-66 70-71 75-78 "
            "80-83 85 90-97 99-100 102 104-108 114 116-119 122 124-126 132-133 138-148 150-165 168 "
            "170-187 190-216 218-221 224-250 252 254-263 265-272 277-282 284 289-293 295-309 "
            "311-316 318-335 337 339 341 343-345 347-348 351-356 358 361-373 375-386 393-403 "
            "405-414 416-424 434 436-439 441 444-449 451-456 462-466"
        ),
        refused=(
            "21-22 25 51-52 74 79 86-88 101 103 110-111 113 115 121 123 128-129 131 166 217 253 "
            "264 274-276 283 286-288 294 317 336 338 342 346 349-350 357 374 404 425-433 440 "
            "442-443 450"
        ),
        clone=120,
        unshare=310,
        personality=136,
        prlimit64=340,
        sockets=(359, 360),
    ),
    "aarch64": _Table(
        architecture=0xC00000B7,
        allowed=(
            "0-17 19-38 43-57 59 61-88 90-91 93-96 98-103 107-111 113-115 117-141 143-160 163-169 "
            "171-197 200-216 221-223 226-234 240 242-243 260 263-264 266-267 269-271 274-279 281 "
            "283-293 424 434 436-439 441 444-449 451-456 462-466"
        ),
        refused=(
            "18 39-41 58 60 89 104-106 112 116 142 161-162 170 217-219 224-225 235-239 241 262 265 "
            "268 272-273 280 282 294 425-433 440 442-443 450"
        ),
        clone=220,
        unshare=97,
        personality=92,
        prlimit64=261,
        sockets=(198, 199),
    ),
    "arm": _Table(
        architecture=0x40000028,
        allowed=(
            "0-6 8-12 14-16 19-20 23-24 26 29 33 36-43 45-47 49-50 54-55 57 60-61 63-66 70-71 75 "
            "77-78 80-81 83 85 91-97 99-100 104-108 114 116 118-119 122 124-126 132-133 138-148 "
            "150-165 168 170-187 190-217 219-221 224-248 250-253 256-261 263-270 274-280 282-287 "
            "289-308 312 314-318 322-336 338-343 345-346 348-363 365-366 368 370 372-374 376-377 "
            "380-385 387 389-399 403 405-414 416-424 434 436-439 441 444-446 448-449 451-456 "
            "462-466 983041-983042 983045"
        ),
        refused=(
            "21 51-52 74 79 86-88 103 111 115 121 128-129 131 218 249 262 309-311 319-321 344 347 "
            "364 367 371 375 378-379 386 388 400-401 404 425-433 440 442-443 450"
        ),
        clone=120,
        unshare=337,
        personality=136,
        prlimit64=369,
        sockets=(281, 288),
    ),
}
# Architectures of a machine's programs. Without x32: its numbers are beyond the tables.
_ARCHITECTURES = {"x86_64": ("x86_64", "i386"), "aarch64": ("aarch64", "arm")}

type _Lines = list[bytes]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load_argument(index: int, *, high: bool = False) -> bytes:
    """Load half of an argument; all supported architectures are little-endian."""
    return _line(_LOAD, _AT_ARGUMENTS + 8 * index + 4 * high)


def _fail(errno: int) -> bytes:
    return _line(_RETURN, _ERRNO | errno)


_PASS = _line(_RETURN, _ALLOW)


def _without(flags: int) -> _Lines:
    """Allow a call whose first argument has none of these flags."""
    return [_load_argument(0), _line(_JUMP_IF_SET, flags, 0, 1), _fail(_EPERM), _PASS]


def _one_of(values: tuple[int, ...], errno: int) -> _Lines:
    """Allow a call whose first argument is one of these."""
    count = len(values)
    tests = [_line(_JUMP_IF_EQUAL, value, count - n) for n, value in enumerate(values)]
    return [_load_argument(0), *tests, _fail(errno), _PASS]


def _known_family() -> _Lines:
    """Allow sockets of the known families, and of netlink except to the kernel's audit."""
    count = len(_FAMILIES) + 4
    tests = [_line(_JUMP_IF_EQUAL, value, count - n) for n, value in enumerate(_FAMILIES)]
    return [
        _load_argument(0),
        *tests,
        _line(_JUMP_IF_EQUAL, _NETLINK, 1),
        _fail(_EAFNOSUPPORT),
        _load_argument(2),
        _line(_JUMP_IF_EQUAL, _AUDIT, 0, 1),
        _fail(_EPROTONOSUPPORT),
        _PASS,
    ]


def _own_limits() -> _Lines:
    """Allow prlimit64 to change the caller's own limits, and to read any process's."""
    return [
        _load_argument(0),
        _line(_JUMP_IF_EQUAL, 0, 5),
        _load_argument(2),
        _line(_JUMP_IF_EQUAL, 0, 0, 2),
        _load_argument(2, high=True),
        _line(_JUMP_IF_EQUAL, 0, 1),
        _fail(_EPERM),
        _PASS,
    ]


def _spans(table: _Table) -> Iterator[tuple[int, int, _Lines]]:
    """Yield ranges of numbers, with the lines for them."""
    for text, answer in ((table.allowed, _PASS), (table.refused, _fail(_EPERM))):
        for word in text.split():
            first, _, last = word.partition("-")
            yield int(first), int(last or first), [answer]
    checked = {
        table.clone: _without(_NEW_NAMESPACES),
        table.unshare: _without(_NEW_NAMESPACES | _NEW_TIME_NAMESPACE),
        table.personality: _one_of(_PERSONALITIES, _EPERM),
        table.prlimit64: _own_limits(),
        **dict.fromkeys(table.sockets, _known_family()),
    }
    for number, lines in checked.items():
        yield number, number, lines


def _sections(table: _Table) -> list[tuple[int, _Lines]]:
    """Return sections that cover all numbers, in order: first number and lines."""
    sections, after = [], 0
    for first, last, lines in sorted(_spans(table)):
        if first > after:
            sections.append((after, [_fail(_ENOSYS)]))
        sections.append((first, lines))
        after = last + 1
    return [*sections, (after, [_fail(_ENOSYS)])]


def _search(sections: list[tuple[int, _Lines]]) -> _Lines:
    """Find the section of the loaded number by binary search, in at most eight comparisons."""
    if len(sections) == 1:
        return sections[0][1]
    middle = len(sections) // 2
    below, above = _search(sections[:middle]), _search(sections[middle:])
    return [_line(_JUMP_IF_AT_LEAST, sections[middle][0], len(below)), *below, *above]


def make_program(machine: str) -> bytes:
    """Make the filter for a machine, as named by uname; unknown machines get no call at all."""
    lines = [_line(_LOAD, _AT_ARCHITECTURE)]
    for name in _ARCHITECTURES.get(machine, ()):
        table = _TABLES[name]
        part = [_line(_LOAD, _AT_NUMBER), *_search(_sections(table))]
        # A conditional jump spans at most 255 lines, less than a table.
        lines += [_line(_JUMP_IF_EQUAL, table.architecture, 1), _line(_JUMP, len(part)), *part]
    return b"".join([*lines, _fail(_ENOSYS)])


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_void_p))


_LINES = make_program(os.uname().machine)
_BUFFER = ctypes.create_string_buffer(_LINES, len(_LINES))
_PROGRAM = _FilterProgram(len(_LINES) // 8, address_of(_BUFFER))


def filter_system_calls() -> None:
    """Install the filter for this process and its children; requires no_new_privs."""
    prctl(PR_SET_SECCOMP, _MODE_FILTER, address_of(_PROGRAM))
