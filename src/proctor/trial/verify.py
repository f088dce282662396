"""Run the tests in the agent's environment and read the rewards they leave.

Our own environments give the verifier a room: fresh /tests and /logs/verifier that the agent's
processes cannot reach. In other environments both directories are emptied first. With
--verifier-compat everything is left as harbor leaves it. Files found there beforehand, or changed
meanwhile, are findings.
"""

import asyncio
import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath

import msgspec

from proctor.digest import sha256_file
from proctor.errors import AddTestsDirError, DownloadVerifierDirError, LinkedRewardError
from proctor.files import find_way_out, read_small
from proctor.harbor.env import resolve_env
from proctor.harbor.trial_result import VerifierResult
from proctor.reward.profile import HARBOR_0_13
from proctor.reward.read import LARGEST, load_rewards, read_score
from proctor.reward.score import Scored
from proctor.sentence import printable
from proctor.task.directory import Step, Task
from proctor.trial.environment import (
    UNLISTED_OPENINGS,
    Environment,
    Listing,
    OpenedFile,
    Watched,
    Watching,
)
from proctor.trial.finding import FindingCode
from proctor.trial.inside import acting_as, empty_directories, exec_script, is_mounted
from proctor.trial.integrity import (
    check_after_tests,
    check_before_tests,
    check_tools,
    find_late_tool_changes,
    find_running,
    keep_tools,
    mark_tools,
)
from proctor.trial.making import find_environment_env
from proctor.trial.model_use import models_open
from proctor.trial.models import VERIFIER_MODELS
from proctor.trial.network import model_port_open, network_of_phase
from proctor.trial.opened import list_made
from proctor.trial.paths import INSIDE
from proctor.trial.trial_run import TrialRun, host_variables
from proctor.trial.verifier_class import make_verifier

# Selecting the tests of a task or step, and the path of their script inside


class Tests(msgspec.Struct, frozen=True):
    """The tests of one verification."""

    sources: tuple[Path, ...]
    """Directories on the host that are uploaded to /tests; later ones overwrite earlier ones."""
    script: PurePosixPath
    """Path of the test script inside."""


def load_tests(task: Task, step: Step | None) -> Tests:
    """Return the tests of a task, or those of a step together with the shared ones.

    Raises:
        FileNotFoundError: there is no test script; harbor's message.
    """
    os_name = task.config.environment.os
    script = INSIDE.tests_dir / f"test{os_name.script_suffix}"
    shared = task.directory / "tests"
    if step is None:
        if task.find_test_script() is None:
            raise FileNotFoundError(f"No test script found in: {shared} (target OS: {os_name})")
        return Tests((shared,), script)
    own = step.directory / "tests"
    if task.find_test_script(step) is None:
        raise FileNotFoundError(
            f"No {os_name} test script found for step '{step.name}': expected "
            f"{own / script.name} or {shared / script.name}"
        )
    sources = tuple(each for each in (shared, own) if each.exists())
    return Tests(sources, script)


# Suspicious reward files: two of them, links, or changed after the tests ended
#
# harbor follows a link out of the trial on the host, and its reward counts. Later readers of a job
# follow no link that leads out of the trial, so the link is replaced by the bytes it led to, but
# only if they are a reward: a link to any other file of the host must not copy that file into the
# evidence.


_REWARDS = ("reward.json", "reward.txt")
_LINKED_OUTPUT = "test-stdout.txt"


async def list_rewards(environment: Environment) -> Mapping[str, str | None]:
    """Return the digests of the reward files in an environment, by name.

    Empty if the environment cannot list files from outside.
    """
    if not isinstance(environment, Listing):
        return {}
    places = [str(INSIDE.verifier_dir / name) for name in _REWARDS]
    try:
        seen = await environment.list_files(places, len(places))
    except Exception:  # noqa: BLE001 - an environment may raise anything; fetching them will tell
        return {}
    return {file.path.rpartition("/")[2]: file.sha256 for file in seen}


def find_odd_rewards(run: TrialRun, before: Mapping[str, str | None]) -> None:
    """Add findings for reward files that a test script alone would not leave."""
    verifier = run.paths.verifier_dir
    there = [name for name in _REWARDS if os.path.lexists(verifier / name)]
    if len(there) > 1:
        run.add_finding(
            FindingCode.TWO_REWARDS,
            "the verifier left both reward.json and reward.txt; reward.json counts, as in harbor",
        )
    for name in there:
        if before.get(name) is None or os.path.islink(verifier / name):
            continue
        with contextlib.suppress(OSError):
            if sha256_file(verifier / name) != before[name]:
                run.add_finding(
                    FindingCode.LATE_REWARD,
                    f"{name} changed after the test script had ended",
                    file=name,
                )


def find_moved_rewards(run: TrialRun, opened: Sequence[OpenedFile] | None) -> None:
    """Add a finding for reward files that were never opened under their names.

    If another file has disappeared from the verifier's directory, the tests may have renamed it.
    """
    if not opened or UNLISTED_OPENINGS in opened:
        return
    verifier, inside = run.paths.verifier_dir, f"{INSIDE.verifier_dir}/"
    names = {each.path.removeprefix(inside) for each in opened if each.path.startswith(inside)}
    there = {name for name in _REWARDS if os.path.lexists(verifier / name)}
    gone = {name for name in names if not os.path.lexists(verifier / name)} - {_LINKED_OUTPUT}
    for name in sorted(there - names):
        if not gone:
            run.add_finding(
                FindingCode.REWARD_MOVED,
                f"{name} was never opened under that name: it was moved or linked there",
                file=name,
            )


def keep_linked_rewards(run: TrialRun) -> None:
    """Add a finding for each reward file that links out of the trial, and keep its target's bytes.

    Raises:
        LinkedRewardError: the target is not a reward.
    """
    trial, verifier = str(run.paths.trial_dir), str(run.paths.verifier_dir)
    for name in _REWARDS:
        path = f"{verifier}/{name}"
        link = find_way_out(trial, path)
        if link is None:
            if os.path.islink(path):
                target = printable(os.readlink(path))
                run.add_finding(
                    FindingCode.LINKED_REWARD,
                    f"{name} was a link to {target}, inside the trial; it was read as harbor reads "
                    "it",
                    target=target,
                )
            continue
        target = printable(os.path.realpath(path))
        run.add_finding(
            FindingCode.LINKED_REWARD,
            f"{name} was a link that led out of the trial, to {target}; it was read as harbor "
            "reads it",
            link=os.path.relpath(link, trial),
            target=target,
        )
        # reward.json wins over reward.txt.
        there = [each for each in _REWARDS if os.path.exists(f"{verifier}/{each}")]
        if there[:1] != [name]:
            continue
        if not isinstance(read_score(verifier, HARBOR_0_13), Scored):
            # harbor's message would quote the target, which may be any file of the host.
            raise LinkedRewardError(f"{path}: a link that leads out of the trial, to no reward")
        if link == path:
            # Keep the link if the target cannot be read.
            with contextlib.suppress(OSError):
                data = read_small(path, LARGEST)
                os.unlink(path)
                # A process inside may still run and put another link here.
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(path, flags, 0o644)
                try:
                    os.write(fd, data)
                finally:
                    os.close(fd)


_OUTPUT = f"{INSIDE.verifier_dir}/test-stdout.txt"
_ENDED = "the test script ended with"
# For files of a verifier that timed out; those of one that ended have the environment's own limit.
_KEEP_SEC = 120
# Shells report death by signal N as exit code 128 + N; a script may also exit with such a code.
_SIGNALS = 128
_SIGPIPE = 141


async def verify_shared(
    run: TrialRun, environment: Environment, step: Step | None = None
) -> VerifierResult:
    """Run the tests in the agent's environment and read their rewards.

    Raises:
        TimeoutError: the tests timed out; a reward they left does not count.
        Exception: the first failure.
    """
    timeout = (run.step_timeouts(step) if step else run.timeouts).verifier
    user = find_verifier_user(run, step)
    room = await _prepare(run, environment, step)
    # Return their marks if a surviving process could change them.
    guarded: Mapping[str, str] | None = None
    uploaded: Sequence[Path] = ()
    if not run.spec.is_harbor_compatible:
        await keep_tools(run, environment)
        # An agent may have got into a service of the image.
        if isinstance(environment, Watched) and await environment.list_processes(
            with_services=True
        ):
            guarded = await mark_tools(environment)
        if run.spec.config.verifier.import_path is None:
            # The upload reports tests that are missing.
            with contextlib.suppress(FileNotFoundError):
                uploaded = load_tests(run.spec.task, step).sources
    network = run.network(step)
    try:
        with acting_as(room, user):
            # The network policy applies to the whole environment, of which the room is a view.
            async with (
                model_port_open(environment),
                network_of_phase(environment, network.baseline, network.verifier),
            ):
                verified = await run_verifier_in_time(run, room, step, timeout)
    except AddTestsDirError:
        # If the upload failed, differing tests are not a sign of tampering.
        raise
    except Exception:  # whatever failed, the agent may have caused it
        await check_after_tests(run, room, uploaded, step)
        raise
    await check_after_tests(run, room, uploaded, step)
    if guarded is not None:
        await check_tools(run, environment, guarded)
    elif not run.spec.is_harbor_compatible:
        await find_late_tool_changes(run, environment)
    return verified


def find_verifier_user(run: TrialRun, step: Step | None) -> str | int | None:
    """User of the tests: the step's, else the task's; None for the environment's default."""
    own = step.config.verifier.user if step else None
    return run.spec.task.config.verifier.user if own is None else own


async def _prepare(run: TrialRun, environment: Environment, step: Step | None) -> Environment:
    """Return where the verifier runs, with its directories cleared of the agent's files."""
    places = (INSIDE.verifier_dir, INSIDE.tests_dir)
    if run.spec.is_harbor_compatible:
        if step is not None:
            await _empty(environment, places)
        return environment
    was_planted = await check_before_tests(run, environment)
    if isinstance(environment, Watched):
        await find_running(run, environment)
        return await environment.open_room(tuple(map(str, reversed(places))))
    # A step's directories have the files of the step before.
    if was_planted or step is not None:
        await _empty(environment, places)
    return environment


async def _empty(environment: Environment, places: Sequence[PurePosixPath]) -> None:
    verifier_dir, tests_dir = places
    await empty_directories(environment, [verifier_dir], open_to_all=True)
    await empty_directories(environment, [tests_dir], open_to_all=False)


async def run_verifier_in_time(
    run: TrialRun,
    environment: Environment,
    step: Step | None,
    timeout: float | None,
    *,
    has_tests: bool = False,
) -> VerifierResult:
    """Run the verifier; if it times out, keep the files that it left, as evidence.

    Raises:
        TimeoutError: it timed out; a reward among its files does not count.
        Exception: the first failure.
    """
    try:
        running = run_verifier(run, environment, step, has_tests=has_tests)
        return await asyncio.wait_for(running, timeout)
    except TimeoutError:
        try:
            async with asyncio.timeout(_KEEP_SEC):
                await _download_results(run, environment)
        except Exception as error:  # noqa: BLE001 - an environment may raise anything; it timed out
            run.logger.warning("what the verifier left could not be kept: %r", error)
        raise


async def run_verifier(
    run: TrialRun, environment: Environment, step: Step | None, *, has_tests: bool = False
) -> VerifierResult:
    """Run the task's tests, or the job's verifier. `has_tests`: the image contains the tests."""
    run.opened = None
    custom = make_verifier(run, environment, step)
    if custom is not None:
        verified = await custom.verify()
        keep_linked_rewards(run)
        return verified
    if has_tests:
        script = INSIDE.tests_dir / "test.sh"
        was_killed = await _run_script(run, environment, step, script)
        rewards = await list_rewards(environment)
    else:
        tests = load_tests(run.spec.task, step)
        try:
            for source in tests.sources:
                await environment.upload_dir(source_dir=source, target_dir=str(INSIDE.tests_dir))
        except Exception as error:  # an environment may raise anything; converted, as by harbor
            raise AddTestsDirError("Failed to add tests directory to environment.") from error
        watching: AbstractContextManager[Sequence[OpenedFile] | None] = nullcontext()
        if isinstance(environment, Watching):
            watching = environment.watch_files(list(list_made(run.account)))
        with watching as opened:
            was_killed = await _run_script(run, environment, step, tests.script)
            # Inside the watch: a process that outlived the script may open them now.
            rewards = await list_rewards(environment)
        run.opened = opened
    await _download_results(run, environment)
    find_odd_rewards(run, rewards)
    find_moved_rewards(run, run.opened)
    keep_linked_rewards(run)
    found = load_rewards(str(run.paths.verifier_dir), HARBOR_0_13)
    if was_killed and found and any(not value <= 0 for value in found.values()):
        run.add_finding(
            FindingCode.TESTS_KILLED, "a signal ended the test script, and there is a reward"
        )
    return VerifierResult(rewards=found)


async def _run_script(
    run: TrialRun, environment: Environment, step: Step | None, script: PurePosixPath
) -> bool:
    """Run the test script as the verifier's user; return whether a signal killed it.

    The exit code is ignored: the reward files alone decide.
    """
    name = shlex.quote(str(script))
    # The task's, overridden by the step's, then the job's.
    task, job = run.spec.task.config.verifier.env, run.spec.config.verifier.env
    merged = {**task, **(step.config.verifier.env if step else {}), **job}
    env = resolve_env(merged, host_variables()) if merged else None
    command = f"({name}) > {_OUTPUT} 2>&1"
    if not run.spec.is_harbor_compatible:
        # Printed by the outer shell, to which the script's own output does not go.
        command = f"{command}; code=$?; echo {_ENDED} $code; exit $code"
    account = None
    if run.kinds.models is not None:
        # In the environment's own variables, the agent's token may stand for a key.
        env_of_all = {**find_environment_env(run, host_variables()), **(env or {})}
        directory = f"{run.place}/{VERIFIER_MODELS}"
        account = run.kinds.models.open_verifier(run.spec.name, directory, env_of_all)
    async with models_open(account):
        given = {**(env or {}), **account.env} if account else env
        done = await exec_script(environment, command, str(script), given)
    if run.spec.is_harbor_compatible:
        return False
    return is_killed(f"{done.stdout or ''}\n{done.stderr or ''}", done.return_code)


def is_killed(said: str, return_code: int) -> bool:
    """Whether a signal ended the test script or its shell, judged by the shell's message.

    The exit code alone is not enough: a script that runs `kill $server; wait $server` exits with
    143. Shells report every signal but SIGPIPE, so its exit code counts by itself: no test script
    ends that way on its own.
    """
    lines = [line for line in said.splitlines() if line.strip()]
    ends = [line for line in lines if line.startswith(f"{_ENDED} ")]
    code = ends[0].split()[-1] if ends else ""
    # The shell itself was killed before it could print the code.
    if not code.isdigit():
        return return_code > _SIGNALS
    return int(code) == _SIGPIPE or (int(code) > _SIGNALS and len(lines) > len(ends))


async def _download_results(run: TrialRun, environment: Environment) -> None:
    if is_mounted(environment):
        return
    try:
        await environment.download_dir(
            source_dir=str(INSIDE.verifier_dir), target_dir=run.paths.verifier_dir
        )
    except Exception as error:  # an environment may raise anything; converted, as by harbor
        message = "Failed to download verifier directory from environment"
        raise DownloadVerifierDirError(message) from error
