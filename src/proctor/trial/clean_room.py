"""The tests once more in a clean room: the image, and the agent's work without the rest.

    keep_for_clean_room   before the verification that counts: the files are kept as they are
    verify_in_clean_room  after it: the same tests where the agent's changes to the system, and
                          everything that it left running, are missing

Where that gives another reward, the tests are run once more on the kept files as they are, the
control: a test that depends on chance is told apart so. A reward is never changed here. Nothing
above 0 needs no second look. What was found is in clean-room.json; what goes wrong is a finding,
`clean-room-skipped`, and no exception of the trial.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import TrialError
from proctor.files import replace_file
from proctor.sentence import count_of
from proctor.task.directory import Step
from proctor.trial.again import noted
from proctor.trial.changes import leave_out
from proctor.trial.clean_room_result import AGREES, MORE, CleanRoomResult, Verification
from proctor.trial.environment import Environment, accounts, is_watched
from proctor.trial.finding import FindingCode
from proctor.trial.flakes import FROZEN, CleanRoom, Kept
from proctor.trial.inside import is_mounted, kind_of
from proctor.trial.paths import TrialPaths
from proctor.trial.sitting import Sitting
from proctor.trial.tools import keep_tools
from proctor.trial.verification import find_own_environment, run_verification

_SILENT = logging.Logger("clean-room")
_SILENT.addHandler(logging.NullHandler())
_MOST_SHOWN = 100
_CLEAN, _CONTROL = "clean", "control"


class Declared(msgspec.Struct, frozen=True):
    """What a task says that its solution needs: the table [metadata.proctor] of task.toml."""

    packages: tuple[str, ...] = ()
    services: tuple[str, ...] = ()


async def keep_for_clean_room(
    sitting: Sitting, environment: Environment, artifacts_dir: Path, step: Step | None = None
) -> CleanRoom | None:
    """Keep the files for a clean room; None where there is none, which is a finding."""
    if sitting.plan.config.verifier.disable or find_own_environment(sitting, step) is not None:
        # A verifier with an environment of its own is in a clean room already.
        return None
    if reason := _find_hindrance(sitting, environment):
        _skip(sitting, reason)
        return None
    room = CleanRoom(step=step, kept=Kept(step=step, artifacts_dir=artifacts_dir))
    try:
        with sitting.phase("freeze", step):
            await _keep(sitting, environment, room)
    except Exception as error:  # noqa: BLE001 - an environment may raise anything, and scores stand
        reason = sitting.describe(error).exception_message
        _skip(sitting, f"the state could not be kept: {reason}")
        return None
    sitting.clean_room = room
    return room


def _find_hindrance(sitting: Sitting, environment: Environment) -> str | None:
    plan, account = sitting.plan, sitting.account
    names = [*plan.task.config.verifier.env, *plan.config.verifier.env]
    keys = [name for name in names if name.endswith("_API_KEY")]
    hindrances = {
        "--no-clean-room": not plan.clean_room,
        "--verifier-compat leaves the environment as harbor does": plan.is_harbor_compatible,
        "the verifier is a class of the job's own": plan.config.verifier.import_path is not None,
        f"the verifier calls a model: it has {keys[:1]}": bool(keys),
        f"{kind_of(environment)} does not say what was changed in it": account is None,
        "the agent changed more than could be listed": account is not None and account.is_cut,
    }
    return next((reason for reason, is_so in hindrances.items() if is_so), None)


async def _keep(sitting: Sitting, environment: Environment, room: CleanRoom) -> None:
    account = sitting.account
    if account is None or not accounts(environment):
        raise TrialError(f"{kind_of(environment)} is an environment that cannot do that")
    room.left_out = leave_out(account.changes, account.imports)
    room.has_memory = any(each.path.startswith("/dev/") for each in account.changes)
    room.survivors = await environment.list_processes() if is_watched(environment) else ()
    if any(kept.state == FROZEN and kept.step is room.step for kept in sitting.kept):
        return
    await keep_tools(sitting, environment)
    await environment.freeze()


async def verify_in_clean_room(sitting: Sitting, environment: Environment | None) -> None:
    """Run the tests in a clean room where they gave something, and write down what that shows.

    Raises:
        CancelledError: the run was stopped.
    """
    room = sitting.clean_room
    if room is None or environment is None or not _gave_something(room.kept):
        return
    sitting.clean_room = None
    began = sitting.clock.monotonic()
    reason, verdict = None, str(FindingCode.CLEAN_ROOM_SKIPPED)
    try:
        with sitting.phase("clean-room", room.step):
            await _verify(sitting, environment, room)
            verdict = _judge(sitting, room)
    except asyncio.CancelledError:
        reason = "the run was stopped"
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the score stands
        told = sitting.describe(error)
        reason = f"{told.exception_type}: {told.exception_message}"
    finally:
        if reason is not None:
            _skip(sitting, reason)
        _write(sitting, room, verdict, reason, sitting.clock.monotonic() - began)


def _gave_something(kept: Kept) -> bool:
    """Whether the verification that counts gave a reward above 0; NaN is one."""
    return any(
        not value <= 0 for each in kept.verifications[:1] for value in _rewards_of(each).values()
    )


def _rewards_of(verification: Verification) -> Mapping[str, float]:
    found: Any = msgspec.json.decode(verification.rewards)
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


async def _verify(sitting: Sitting, environment: Environment, room: CleanRoom) -> None:
    if not accounts(environment):
        raise TrialError(f"{kind_of(environment)} is an environment that cannot do that")
    top = sitting.paths.clean_room_dir
    paths = _place(environment, sitting.paths, _CLEAN)
    await _verify_in(sitting, environment.open_clean(paths, room.left_out), paths, room)
    if room.kept.verifications[1].is_same:
        shutil.rmtree(top, ignore_errors=True)
        return
    paths = _place(environment, sitting.paths, _CONTROL)
    await _verify_in(sitting, environment.open_frozen(paths), paths, room)


def _place(environment: Environment, paths: TrialPaths, name: str) -> TrialPaths:
    place = paths.clean_room_dir / name
    place.mkdir(parents=True)
    if is_mounted(environment):
        # Whoever the tests run as inside writes there through a mount.
        place.chmod(0o777)
    return TrialPaths(paths.trial_dir, place)


async def _verify_in(
    sitting: Sitting, opening: Awaitable[Environment], paths: TrialPaths, room: CleanRoom
) -> None:
    # What is found is found by the verification that counts.
    again = replace(sitting, findings=[], logger=_SILENT, other_paths=paths, account=None)
    async with _opened(sitting, opening) as where:
        verifying = run_verification(again, where, room.kept.artifacts_dir, room.step)
        try:
            await noted(sitting, (room.kept,), verifying)
        except Exception as error:  # noqa: BLE001 - it is a result like another, and noted as one
            sitting.logger.debug("verification in a clean room: %s", error)


@asynccontextmanager
async def _opened(sitting: Sitting, opening: Awaitable[Environment]) -> AsyncIterator[Environment]:
    """An environment that is stopped whatever happens."""
    where = await asyncio.wait_for(opening, sitting.timeouts.environment)
    try:
        yield where
    finally:
        try:
            await asyncio.shield(where.stop(delete=True))
        except Exception as error:  # noqa: BLE001 - an environment may raise anything; the score stands
            sitting.logger.debug("a clean room could not be stopped: %s", error)


def _judge(sitting: Sitting, room: CleanRoom) -> str:
    """What the verifications say, as a finding where they say something against the score."""
    first, clean, *control = room.kept.verifications
    if clean.is_same:
        return AGREES
    if not _is_lower(clean, first):
        return MORE
    is_flaky = not control[0].is_same
    declared = find_declared(sitting)
    code = FindingCode.CLEAN_ROOM_DIFFERS
    why = f"without {count_of(len(room.left_out.paths), 'path')} of the agent's"
    if is_flaky and (room.survivors or room.has_memory):
        why = f"without {count_of(len(room.survivors), 'process', 'processes')} of the agent's"
        if any(each.listens for each in room.survivors):
            code = FindingCode.CLEAN_ROOM_SERVICES
    elif is_flaky and not room.left_out.paths:
        code = FindingCode.VERIFIER_FLAKY
        why = "with the same files"
    if (declared.packages or declared.services) and code is not FindingCode.VERIFIER_FLAKY:
        code = FindingCode.CLEAN_ROOM_DECLARED
    sitting.add_finding(
        code,
        f"the tests gave {clean.result} {why}, and {first.result} in the trial",
        first=first.result,
        clean=clean.result,
        control=control[0].result,
        left_out=sorted(room.left_out.paths)[:_MOST_SHOWN],
        processes=[each.command for each in room.survivors[:_MOST_SHOWN]],
    )
    return str(code)


def _is_lower(clean: Verification, first: Verification) -> bool:
    """Whether any reward is lower, or missing."""
    rewards, least = _rewards_of(clean), float("-inf")
    before = _rewards_of(first).items()
    return any(not rewards.get(name, least) >= value for name, value in before)


def find_declared(sitting: Sitting) -> Declared:
    """What the task says that its solution needs; nothing where the table is no such one."""
    table = sitting.plan.task.config.metadata.get("proctor", {})
    try:
        return msgspec.convert(table, Declared)
    except msgspec.ValidationError as error:
        sitting.logger.warning("[metadata.proctor] of task.toml cannot be used: %s", error)
        return Declared()


def _skip(sitting: Sitting, reason: str) -> None:
    sitting.add_finding(
        FindingCode.CLEAN_ROOM_SKIPPED,
        f"the tests were not repeated in a clean room: {reason}",
        reason=reason,
    )


def _write(
    sitting: Sitting, room: CleanRoom, verdict: str, reason: str | None, seconds: float
) -> None:
    verified: list[Verification | None] = [*room.kept.verifications, None, None, None]
    stored = CleanRoomResult(
        verdict=verdict,
        reason=reason,
        step=room.step.name if room.step else None,
        left_out=len(room.left_out.paths),
        survivors=len(room.survivors),
        first=verified[0],
        clean=verified[1],
        control=verified[2],
        seconds=round(seconds, 6),
    )
    text = msgspec.json.format(msgspec.json.encode(stored), indent=2).decode()
    try:
        replace_file(sitting.paths.clean_room_path, sitting.clean(text).encode())
    except OSError as error:
        sitting.logger.warning("clean-room.json cannot be written: %s", error)
