"""Fetch what the agent left, even after it was killed; give the verifier the host's files.

    agent/                      /logs/agent of the environment, next to files written on the host
    agent/….inside              the inside version of a file that differs from the host's
    agent/trajectory.jsonl      /workspace/trajectory.jsonl, if the agent wrote its trace only there
    agent/artifacts/            /workspace/artifacts, the media of such a trace

Failures are logged and never fail a trial.
"""

import asyncio
import filecmp
import os
import shutil
import stat
from pathlib import Path

from proctor.trial.environment import Environment
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.inside import is_mounted
from proctor.trial.model_use import fill_context
from proctor.trial.paths import INSIDE
from proctor.trial.recording import has_entries
from proctor.trial.trial_run import Target, TrialRun, checked_context
from proctor.trial.unchanged import take_fingerprint

# Merging files from inside an environment with those written on the host
#
# Files written on the host win: a differing file of the same name from inside is kept as
# `<name>.inside`, so that a process inside cannot forge the logs of an agent that runs outside.
# Links are moved as links and never followed.


SUFFIX = ".inside"


def merge_tree(source: str, target: str) -> list[str]:
    """Move everything in a directory into another; return the paths of files that differed."""
    differing: list[str] = []
    _merge_entries(source, target, "", differing)
    return differing


def _merge_entries(source: str, target: str, below: str, differing: list[str]) -> None:
    with os.scandir(source) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name = f"{below}{entry.name}"
        place = f"{target}/{entry.name}"
        if not os.path.lexists(place):
            os.rename(entry.path, place)
        elif entry.is_dir(follow_symlinks=False) and _is_directory(place):
            _merge_entries(entry.path, place, f"{name}/", differing)
        elif not _is_same(entry.path, place):
            os.rename(entry.path, _find_free(place))
            differing.append(name)


def _is_directory(path: str) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _is_same(inside: str, outside: str) -> bool:
    one, other = os.lstat(inside), os.lstat(outside)
    if stat.S_ISLNK(one.st_mode) and stat.S_ISLNK(other.st_mode):
        return os.readlink(inside) == os.readlink(outside)
    plain = stat.S_ISREG(one.st_mode) and stat.S_ISREG(other.st_mode)
    return plain and filecmp.cmp(inside, outside, shallow=False)


def _find_free(place: str) -> str:
    free, number = f"{place}{SUFFIX}", 1
    while os.path.lexists(free):
        number += 1
        free = f"{place}{SUFFIX}.{number}"
    return free


_WORKSPACE_TRACE = "/workspace/trajectory.jsonl"
_WORKSPACE_MEDIA = "/workspace/artifacts"
# Limit on the files listed in a finding.
_MOST = 100


async def collect_agent_output(run: TrialRun, target: Target) -> None:
    """Fetch the agent's logs, and let the agent fill its context from them if it has not yet."""
    await _fetch_logs(run)
    _add_agent_findings(run)
    context = target.agent_result
    if context is None:
        return
    backfill = getattr(run.agent, "populate_context_post_run", None)
    if context.is_empty() and callable(backfill):
        backfill(context)
    fill_context(run, context)
    target.agent_result = checked_context(context, run.logger)


def _add_agent_findings(run: TrialRun) -> None:
    """Add the agent's own findings; agents written for harbor have none."""
    take = getattr(run.agent, "take_findings", None)
    found = take() if callable(take) else ()
    for finding in found if isinstance(found, list) else ():
        if isinstance(finding, Finding):
            run.add_finding(finding.code, finding.message, **finding.detail)


async def _fetch_logs(run: TrialRun) -> None:
    environment = run.environment
    if run.has_logs or environment is None or not run.is_started or run.is_stopped:
        return
    run.has_logs, run.fetched = True, None
    target = f"{run.place}/agent"
    try:
        if is_mounted(environment):
            # harbor's Docker environment changes the owner of mounted logs here.
            prepare = getattr(environment, "prepare_logs_for_host", None)
            if callable(prepare):
                await prepare()
        elif has_entries(target):
            await _fetch_beside(run, environment, target)
        else:
            await environment.download_dir(source_dir=str(INSIDE.agent_dir), target_dir=target)
            run.fetched = take_fingerprint([Path(target)])
    except Exception:  # an environment may raise anything; logged, as by harbor
        run.logger.exception(f"Failed to download logs to {target}")
    await _fetch_workspace_trace(run, environment)


async def _fetch_beside(run: TrialRun, environment: Environment, target: str) -> None:
    """Fetch the agent's logs and merge them with those written on the host."""
    fetched = f"{run.place}/.agent-inside"
    os.makedirs(fetched, exist_ok=True)
    try:
        await environment.download_dir(source_dir=str(INSIDE.agent_dir), target_dir=fetched)
    finally:
        # Also merge what an interrupted download fetched.
        if has_entries(fetched):
            _find_differing(run, await asyncio.to_thread(_merge, fetched, target))
        else:
            os.rmdir(fetched)


def _merge(fetched: str, target: str) -> list[str]:
    differing = merge_tree(fetched, target)
    # What remains has identical copies in the target.
    shutil.rmtree(fetched)
    return differing


def _find_differing(run: TrialRun, names: list[str]) -> None:
    if not names:
        return
    some = "a file" if len(names) == 1 else f"{len(names)} files"
    run.add_finding(
        FindingCode.LOGS_DIFFER,
        f"{some} of {INSIDE.agent_dir} differ from what the agent wrote on the host, which stands; "
        f"they are kept as *{SUFFIX}",
        files=names[:_MOST],
    )


async def _fetch_workspace_trace(run: TrialRun, environment: Environment) -> None:
    """Fetch the trace of an agent that runs inside and does not use /logs/agent."""
    directory = run.paths.agent_dir
    try:
        if os.path.exists(f"{directory}/trajectory.jsonl"):
            return
        # As root: the agent's user may be the only one who can read it.
        if not await environment.is_file(_WORKSPACE_TRACE, user="root"):
            return
        await environment.download_file(
            source_path=_WORKSPACE_TRACE, target_path=directory / "trajectory.jsonl"
        )
        if await environment.is_dir(_WORKSPACE_MEDIA, user="root"):
            await environment.download_dir(
                source_dir=_WORKSPACE_MEDIA, target_dir=directory / "artifacts"
            )
    except Exception as error:  # noqa: BLE001 - an environment may raise anything; logs are a gift
        run.logger.warning("%s could not be fetched: %s", _WORKSPACE_TRACE, error)


def _is_all_inside(run: TrialRun) -> bool:
    """Whether the agent's logs on the host came from inside and have not changed since."""
    if run.fetched is None or hasattr(run.agent, "populate_context_post_run"):
        # An agent may write while it reads its logs, and two changes within one clock tick look
        # like none.
        return False
    return run.fetched == take_fingerprint([run.paths.agent_dir])


async def upload_agent_logs(run: TrialRun, environment: Environment) -> None:
    """Upload what the agent wrote on the host, for the verifier."""
    directory = run.paths.agent_dir
    if is_mounted(environment) or not has_entries(str(directory)) or _is_all_inside(run):
        return
    try:
        await environment.upload_dir(source_dir=directory, target_dir=str(INSIDE.agent_dir))
    except Exception:  # an environment may raise anything; logged, as by harbor
        run.logger.exception("Failed to upload agent logs back to environment")
