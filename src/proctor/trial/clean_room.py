"""Repeat the tests in a clean room: the image plus the agent's work, without its other changes.

    keep_for_clean_room   before the verification that counts: freeze the files
    verify_in_clean_room  after it: run the same tests without the agent's system changes and
                          without the processes it left running

If the clean room gives a lower reward, the tests also run on all frozen files (the control) until
one gives the trial's reward, and clean rooms are repeated until one does. This separates tests that
depend on chance from rewards that the agent's work does not explain. Rewards are never changed
here, and a trial without a reward above 0 is not repeated. The result is clean-room.json; a failure
here is the finding `clean-room-skipped`, never an exception of the trial.
"""

import asyncio
import json
import logging
import math
import re
import shutil
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import EngineError, StateTooLargeError, TrialError, UnsupportedError
from proctor.files import replace_file
from proctor.sentence import count_of
from proctor.task.directory import Step
from proctor.trial.account import join_instructions
from proctor.trial.changes import leave_out
from proctor.trial.clean_room_result import AGREES, MORE, CleanRoomResult, Verification
from proctor.trial.environment import Accounting, Environment, Process, Watched
from proctor.trial.finding import FindingCode
from proctor.trial.flakes import FROZEN, CleanRoom, Reverification
from proctor.trial.inside import is_mounted, kind_of
from proctor.trial.integrity import keep_tools
from proctor.trial.packages import find_packages, install_packages
from proctor.trial.paths import TrialPaths
from proctor.trial.reverify import noted, opened_copy
from proctor.trial.trial_run import TrialRun
from proctor.trial.unasked import find_overwritten_links
from proctor.trial.verification import find_own_environment, run_verification

# Explaining why a clean room gave less than the trial


# Phrases by which an instruction asks for a running service.
_SERVICE = re.compile(
    r"\b(serv(e|es|ed|ing|er|ers|ice|ices)|daemons?|background|ports?|listen(s|ing)?|sockets?|"
    r"https?|urls?|apis?|endpoints?|localhost|127\.0\.0\.1|running|databases?|proxy|ssh)\b",
    re.IGNORECASE,
)


class Declared(msgspec.Struct, frozen=True):
    """What a task declares that its solution needs: the table [metadata.proctor] of task.toml."""

    packages: tuple[str, ...] = ()
    services: tuple[str, ...] = ()


def find_cause(room: CleanRoom) -> tuple[FindingCode, str]:
    """Return the finding that explains a lower reward: files, processes or chance."""
    first, *_ = room.reverification.verifications
    n_paths = len(room.left_out.paths) or len(room.left_out.plain)
    without_files = f"without {count_of(n_paths, 'path')} of the agent's"
    is_repeated = room.is_repeated_by(room.control)
    if is_repeated and n_paths:
        if room.is_repeated_by(room.clean):
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
    """Whether an instruction asks for a running service, or names a process that was left running.

    Otherwise a listening process does not explain a reward: it may have nothing to do with the
    task.
    """
    paths = (path for each in survivors for path in (each.executable, each.script) if path)
    names = (path.rpartition("/")[2] for path in paths)
    return _SERVICE.search(text) is not None or has_name(text, names)


def is_declared(room: CleanRoom, declared: Declared) -> bool:
    """Whether the task's declarations explain the difference.

    Declared files do if a clean room that includes them gave the trial's reward; declared processes
    do if one of the survivors has a declared name.
    """
    if room.is_repeated_by(room.control):
        return room.is_repeated_by(room.declared)
    running = [f"{each.command} {each.executable or ''}" for each in room.survivors]
    return any(has_name(text, declared.services) for text in running)


def has_name(text: str, names: Iterable[str]) -> bool:
    """Whether a path or a command contains one of the names as a word."""
    return any(re.search(rf"(?<![\w+]){re.escape(name)}(?![\w+])", text) for name in names)


_SILENT = logging.Logger("clean-room")
_SILENT.addHandler(logging.NullHandler())
_MOST_SHOWN = 100
_CLEAN, _CONTROL, _PACKAGED, _DECLARED = "clean", "control", "packaged", "declared"
# How often controls run until one agrees, and clean rooms before they count as different: few where
# all controls agree, more where the control shows that the tests depend on chance.
_MOST_CONTROLS = 5
_MOST_WHERE_STEADY = 3
_MOST_WHERE_FLAKY = 8
_LEAST_SEC = 60.0
# Timeout of a repeated verification, as a multiple of the first one's duration (at least a minute).
# Tests that wait for a missing service would otherwise use the task's whole timeout.
_MANY_TIMES = 10


async def keep_for_clean_room(
    run: TrialRun, environment: Environment, artifacts_dir: Path, step: Step | None = None
) -> None:
    """Freeze the files for a clean room, or record why that is not possible."""
    run.clean_room = None
    if run.spec.config.verifier.disable or find_own_environment(run, step) is not None:
        # A separate verifier environment is a clean room already.
        return
    if isinstance(environment, Watched) and environment.snapshot.compute_backend == "null":
        # Nothing runs in this environment, so there is nothing to detect.
        return
    room = CleanRoom(
        step=step, reverification=Reverification(step=step, artifacts_dir=artifacts_dir)
    )
    spec, account = run.spec, run.account
    names = [*spec.task.config.verifier.env, *spec.config.verifier.env]
    keys = [name for name in names if name.endswith("_API_KEY")]
    hindrances = {
        "--no-clean-room": not spec.clean_room,
        "--verifier-compat leaves the environment as harbor does": spec.is_harbor_compatible,
        "the verifier is a class of the job's own": spec.config.verifier.import_path is not None,
        f"the verifier calls a model: it has {', '.join(keys)}": bool(keys),
        f"{kind_of(environment)} does not say what was changed in it": account is None,
    }
    room.reason = next((reason for reason, is_so in hindrances.items() if is_so), None)
    if room.reason is None:
        try:
            with run.phase("freeze", step):
                await _keep(run, environment, room)
        except Exception as error:  # noqa: BLE001 - an environment may raise anything; scores stand
            described = run.describe(error).exception_message
            room.reason = f"the state could not be kept: {described}"
            room.is_prevented = _is_prevented(error)
    run.clean_room = room


async def _keep(run: TrialRun, environment: Environment, room: CleanRoom) -> None:
    account = run.account
    if account is None or not isinstance(environment, Accounting):
        raise TrialError(f"{kind_of(environment)} is an environment that cannot do that")
    if account.is_cut:
        raise StateTooLargeError("the agent changed more than can be listed")
    room.left_out = leave_out(account.changes, {*account.imports, *account.unasked}, account.merged)
    room.survivors = await environment.list_processes() if isinstance(environment, Watched) else ()
    if any(each.state == FROZEN and each.step is room.step for each in run.reverifications):
        return
    await keep_tools(run, environment)
    await environment.freeze()


async def verify_in_clean_room(run: TrialRun, environment: Environment | None) -> None:
    """Run the tests in a clean room if the trial has a reward above 0, and record the result.

    Raises:
        CancelledError: the run was stopped.
    """
    room = run.clean_room
    if room is None or environment is None or not _has_reward(room.reverification):
        return
    run.clean_room = None
    began = run.clock.monotonic()
    verdict = str(FindingCode.CLEAN_ROOM_SKIPPED)
    try:
        if room.reason is None:
            with run.phase("clean-room", room.step):
                await _verify(run, environment, room)
                verdict = _judge(run, room)
    except asyncio.CancelledError:
        room.reason = "the run was stopped"
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the score stands
        described = run.describe(error)
        room.reason = f"{described.exception_type}: {described.exception_message}"
        room.is_prevented = _is_prevented(error)
    finally:
        if room.reason is not None:
            run.add_finding(
                FindingCode.CLEAN_ROOM_PREVENTED
                if room.is_prevented
                else FindingCode.CLEAN_ROOM_SKIPPED,
                f"the tests were not repeated in a clean room: {room.reason}",
                reason=room.reason,
            )
        if room.clean:
            stored = CleanRoomResult(
                verdict=verdict,
                reason=room.reason,
                step=room.step.name if room.step else None,
                left_out=len(room.left_out.paths),
                survivors=len(room.survivors),
                first=room.reverification.verifications[0],
                clean=tuple(_compare(room, room.clean)),
                control=tuple(_compare(room, room.control)),
                packages=room.packages,
                packaged=next(_compare(room, [room.packaged]), None) if room.packaged else None,
                seconds=round(run.clock.monotonic() - began, 6),
            )
            text = msgspec.json.format(msgspec.json.encode(stored), indent=2).decode()
            try:
                path = _find_home(run, room) / run.paths.clean_room_path.name
                replace_file(path, run.clean(text).encode())
            except OSError as error:
                run.logger.warning("clean-room.json cannot be written: %s", error)


def _is_prevented(error: Exception) -> bool:
    """Whether the agent may have caused the clean room to fail.

    False where the environment supports no clean rooms, or the container engine is gone.
    """
    return not isinstance(error, UnsupportedError | EngineError | TrialError)


def _has_reward(reverification: Reverification) -> bool:
    """Whether the verification that counts gave a reward above 0, NaN and infinity included."""
    return any(
        not value <= 0
        for each in reverification.verifications[:1]
        for value in _rewards_of(each).values()
    )


def _rewards_of(verification: Verification) -> Mapping[str, float]:
    found: Any = json.loads(bytes(verification.rewards))
    if not isinstance(found, dict):
        return {}
    # clean-room.json stores a reward that is not finite as null. NaN compares neither less nor
    # more.
    return {name: math.nan if value is None else value for name, value in found.items()}


async def _verify(run: TrialRun, environment: Environment, room: CleanRoom) -> None:
    if not isinstance(environment, Accounting):
        raise TrialError(f"{kind_of(environment)} is an environment that cannot do that")
    paths = _place(run, environment, room, _CLEAN)
    account = run.account
    if account is not None:
        links = find_overwritten_links(account.changes, account.late)
        more = {*account.imports, *account.unasked, *links}
        room.left_out = leave_out(account.changes, more, account.merged)
    first = room.reverification.verifications[0]
    await _verify_clean(run, environment, paths, room)
    if room.clean[0].result == first.result:
        left = _find_home(run, room) / run.paths.clean_room_dir.name
        shutil.rmtree(left, ignore_errors=True)
        return
    if not _is_lower(room.clean[0], first):
        return
    # A service may still have been starting.
    if room.survivors and isinstance(environment, Watched):
        listening = {each.pid for each in await environment.list_processes() if each.listens}
        room.survivors = [
            msgspec.structs.replace(each, listens=each.listens or each.pid in listening)
            for each in room.survivors
        ]
    # Without a service that the tests need, every control would fail in the same way.
    most = 1 if any(each.listens for each in room.survivors) else _MOST_CONTROLS
    while len(room.control) < most and not room.is_repeated_by(room.control):
        await _verify_on_all(run, environment, room)
    left_out = room.left_out.paths or room.left_out.plain
    if not left_out or not room.is_repeated_by(room.control):
        # Either no files explain the reward, or the clean room had all of the control's.
        return
    # What explains a difference goes first: only chance takes many repetitions.
    await _verify_with_packages(run, environment, room)
    if room.packaged is not None and room.packaged.result == first.result:
        return
    await _verify_declared(run, environment, room)
    if not room.is_repeated_by(room.declared):
        await _repeat_clean(run, environment, paths, room)


async def _repeat_clean(
    run: TrialRun, environment: Accounting, paths: TrialPaths, room: CleanRoom
) -> None:
    """Repeat clean rooms until one gives the trial's reward or chance is unlikely.

    Before that verdict, the control also runs more than once: whether it always agrees decides how
    often a clean room may fail by chance.
    """
    most = _MOST_WHERE_STEADY
    while len(room.clean) < most and not room.is_repeated_by(room.clean):
        await _verify_clean(run, environment, paths, room)
        if len(room.clean) == most and not room.is_repeated_by(room.clean):
            while len(room.control) < _MOST_WHERE_STEADY:
                await _verify_on_all(run, environment, room)
            if not all(room.is_repeated_by([each]) for each in room.control):
                most = _MOST_WHERE_FLAKY


async def _verify_clean(
    run: TrialRun, environment: Accounting, paths: TrialPaths, room: CleanRoom
) -> None:
    opening = environment.open_clean(paths, room.left_out)
    room.clean.append(await _verify_in(run, opening, paths, room))


async def _verify_on_all(run: TrialRun, environment: Accounting, room: CleanRoom) -> None:
    paths = _place(run, environment, room, _CONTROL)
    room.control.append(await _verify_in(run, environment.open_frozen(paths), paths, room))


async def _verify_declared(run: TrialRun, environment: Accounting, room: CleanRoom) -> None:
    """Try a clean room that also has the agent's files whose names the task declares."""
    declared = find_declared(run)
    names = (*declared.packages, *declared.services)
    kept = frozenset(path for path in room.left_out.paths if has_name(path, names))
    if not kept:
        return
    paths = _place(run, environment, room, _DECLARED)
    left_out = msgspec.structs.replace(room.left_out, paths=room.left_out.paths - kept)
    opening = environment.open_clean(paths, left_out)
    room.declared.append(await _verify_in(run, opening, paths, room))


async def _verify_with_packages(run: TrialRun, environment: Accounting, room: CleanRoom) -> None:
    """Try a clean room with the agent's packages reinstalled, if it installed any."""
    account = run.account
    if account is None:
        return
    workdir = account.around.workdir
    paths = _place(run, environment, room, _PACKAGED)
    opening = environment.open_clean(paths, room.left_out)
    try:
        async with opened_copy(run, opening) as where:
            packages = await find_packages(account.changes, environment, where, workdir)
            if not packages.names:
                return
            room.packages = await install_packages(where, packages)
            room.packaged = await _verify_there(run, where, paths, room)
    except Exception as error:  # noqa: BLE001 - the finding without packages stands
        run.logger.warning("the packages of the agent were not tried: %s", error)


def _find_home(run: TrialRun, room: CleanRoom) -> Path:
    """The directory for clean-room.json: the trial's, or the step's for all but the last step."""
    step, paths = room.step, run.paths
    is_last = step is None or step is run.spec.task.steps[-1]
    return paths.trial_dir if is_last or step is None else paths.step_dir(step.name)


def _place(run: TrialRun, environment: Environment, room: CleanRoom, name: str) -> TrialPaths:
    place = _find_home(run, room) / run.paths.clean_room_dir.name / name
    place.mkdir(parents=True, exist_ok=True)
    if is_mounted(environment):
        # The tests may run as any user inside, and write here through a mount.
        place.chmod(0o777)
    return TrialPaths(run.paths.trial_dir, place)


async def _verify_in(
    run: TrialRun, opening: Awaitable[Environment], paths: TrialPaths, room: CleanRoom
) -> Verification:
    async with opened_copy(run, opening) as where:
        return await _verify_there(run, where, paths, room)


async def _verify_there(
    run: TrialRun, where: Environment, paths: TrialPaths, room: CleanRoom
) -> Verification:
    repeated = Reverification(step=room.step)
    # Only the verification that counts adds findings to the trial.
    again = replace(run, findings=[], logger=_SILENT, paths=paths, account=None)
    verifying = run_verification(again, where, room.reverification.artifacts_dir, room.step)
    limit = max(_LEAST_SEC, _MANY_TIMES * room.reverification.verifications[0].seconds)
    try:
        await noted(run, (repeated,), asyncio.wait_for(verifying, limit))
    except Exception as error:  # noqa: BLE001 - it is a result like another, and noted as one
        run.logger.debug("verification in a clean room: %s", error)
    return repeated.verifications[0]


def _judge(run: TrialRun, room: CleanRoom) -> str:
    """Return the verdict, and add a finding where the verifications cast doubt on the score."""
    first, clean = room.reverification.verifications[0], room.clean[0]
    if clean.result == first.result:
        return AGREES
    if not _is_lower(clean, first):
        return MORE
    code, why = find_cause(room)
    text = join_instructions(run)
    if code is FindingCode.CLEAN_ROOM_SERVICES and not asks_for_service(text, room.survivors):
        code = FindingCode.CLEAN_ROOM_DIFFERS
    if code is FindingCode.CLEAN_ROOM_DIFFERS and is_declared(room, find_declared(run)):
        code = FindingCode.CLEAN_ROOM_DECLARED
    run.add_finding(
        code,
        f"the tests gave {clean.result} {why}, and {first.result} in the trial",
        first=first.result,
        clean=[each.result for each in room.clean],
        control=[each.result for each in room.control],
        left_out=sorted(room.left_out.paths)[:_MOST_SHOWN],
        processes=[each.command for each in room.survivors[:_MOST_SHOWN]],
        packages=list(room.packages[:_MOST_SHOWN]),
    )
    return str(code)


def _is_lower(clean: Verification, first: Verification) -> bool:
    """Whether any reward is lower or missing."""
    rewards, least = _rewards_of(clean), float("-inf")
    before = _rewards_of(first).items()
    return any(not rewards.get(name, least) >= value for name, value in before)


def find_declared(run: TrialRun) -> Declared:
    """What the task declares that its solution needs; empty if the table is malformed."""
    table = run.spec.task.config.metadata.get("proctor", {})
    try:
        return msgspec.convert(table, Declared)
    except msgspec.ValidationError as error:
        run.logger.warning("[metadata.proctor] of task.toml cannot be used: %s", error)
        return Declared()


def _compare(room: CleanRoom, verifications: Iterable[Verification]) -> Iterator[Verification]:
    """Number verifications and compare each with the one that counts."""
    first = room.reverification.verifications[0].result
    for number, each in enumerate(verifications, 1):
        yield msgspec.structs.replace(each, number=number, is_same=each.result == first)
