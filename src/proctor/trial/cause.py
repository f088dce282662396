"""Why a clean room gave less than the trial got, by what was tried and what the task asks for."""

import re
from collections.abc import Iterable

import msgspec

from proctor.sentence import count_of
from proctor.trial.environment import Process
from proctor.trial.finding import FindingCode
from proctor.trial.flakes import CleanRoom

_SERVICE = re.compile(
    r"\b(serv(e|es|ed|ing|er|ers|ice|ices)|daemons?|background|ports?|listen(s|ing)?|sockets?|"
    r"https?|urls?|apis?|endpoints?|localhost|127\.0\.0\.1|running|databases?|proxy|ssh)\b",
    re.IGNORECASE,
)
"""Words of an instruction that asks for something that runs."""


class Declared(msgspec.Struct, frozen=True):
    """What a task says that its solution needs: the table [metadata.proctor] of task.toml."""

    packages: tuple[str, ...] = ()
    services: tuple[str, ...] = ()


def find_cause(room: CleanRoom) -> tuple[FindingCode, str]:
    """Why a clean room gave less: by which files or processes, or by chance."""
    first, *_ = room.kept.verifications
    n_paths = len(room.left_out.paths) or len(room.left_out.plain)
    without_files = f"without {count_of(n_paths, 'path')} of the agent's"
    is_repeated = room.control[-1].result == first.result
    if is_repeated and n_paths:
        if any(each.result == first.result for each in room.clean):
            return FindingCode.VERIFIER_FLAKY, "once, and the same at another time,"
        if room.packaged and room.packaged.result == first.result:
            packages = count_of(len(room.packages), "package")
            return FindingCode.CLEAN_ROOM_PACKAGES, f"without {packages} that the agent installed"
        return FindingCode.CLEAN_ROOM_DIFFERS, without_files
    if is_repeated:
        return FindingCode.VERIFIER_FLAKY, "with the same files"
    if any(each.listens for each in room.survivors):
        running = count_of(len(room.survivors), "process", "processes")
        return FindingCode.CLEAN_ROOM_SERVICES, f"without {running} of the agent's"
    return FindingCode.CLEAN_ROOM_DIFFERS, f"in {len(room.control) + 1} fresh environments"


def asks_for_service(text: str, survivors: Iterable[Process]) -> bool:
    """Whether an instruction asks for something that runs, or names what was left running.

    A reward for work of another kind does not rest on a process because that listens.
    """
    paths = (path for each in survivors for path in (each.executable, each.script) if path)
    names = (path.rpartition("/")[2] for path in paths)
    return _SERVICE.search(text) is not None or bears_name(text, names)


def is_declared(room: CleanRoom, declared: Declared) -> bool:
    """Whether what the task declares accounts for the difference.

    Files do where a clean room that has those of the declared names gave what the trial got;
    processes do where one of them has a declared name.
    """
    first, *_ = room.kept.verifications
    if room.control[-1].result == first.result:
        return bool(room.declared) and room.declared[-1].result == first.result
    running = [f"{each.command} {each.executable or ''}" for each in room.survivors]
    return any(bears_name(text, declared.services) for text in running)


def bears_name(text: str, names: Iterable[str]) -> bool:
    """Whether a path or a command has one of the names as a word."""
    return any(re.search(rf"(?<![\w+]){re.escape(name)}(?![\w+])", text) for name in names)
