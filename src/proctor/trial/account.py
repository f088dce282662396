"""<trial>/changes.jsonl: everything that differs from the image, and when it was written.

    begin_account      after the agent's set-up: what is there already is not the agent's doing
    note_changes       after the agent: what it changed, each path with its digest
    note_late_changes  after the verification: what changed during it

The first line counts the paths of each class, and states whether the list is complete. Only
environments that know their image have an account.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

import msgspec

from proctor.files import replace_file
from proctor.sentence import count_of
from proctor.task.directory import Step
from proctor.trial.change_record import MOST_LISTED, Header
from proctor.trial.changes import (
    Change,
    ChangeAccount,
    Classifier,
    Phase,
    Place,
    find_named,
    find_test_imports,
)
from proctor.trial.environment import Accounting, Environment
from proctor.trial.finding import FindingCode
from proctor.trial.opened import find_opened
from proctor.trial.paths import TrialPaths
from proctor.trial.trial_run import TrialRun
from proctor.trial.unasked import find_merged, find_unasked

# Databases of package managers; only root can write there.
_PACKAGE_LISTS = re.compile(
    r"/var/lib/(dpkg|rpm|pacman)/|/lib/apk/db/|/usr/lib/sysimage/rpm/|\.dist-info/|/node_modules/"
)
# Libraries and modules.
_LOADED = re.compile(r"\.(so(\.[\d.]+)?|py|pm|rb|js)$")
# Limit on the paths listed in a finding.
_MOST_SHOWN = 100


async def begin_account(run: TrialRun, environment: Environment) -> None:
    """Record what is there before the agent begins."""
    if not isinstance(environment, Accounting):
        return
    try:
        written, _ = await environment.list_written({}, is_hashing=False)
    except Exception as error:  # noqa: BLE001 - an environment may raise anything; the trial goes on
        run.logger.warning("the changes of the agent cannot be recorded: %s", error)
        return
    run.account = ChangeAccount(marks={each.path: each.mark for each in written})


async def note_changes(run: TrialRun, environment: Environment, step: Step | None = None) -> None:
    """Record the agent's changes, and add findings about them."""
    account = run.account
    if account is None or not isinstance(environment, Accounting):
        return
    try:
        written, account.is_cut = await environment.list_written(account.marks)
    except Exception as error:  # noqa: BLE001 - an environment may raise anything; the trial goes on
        _give_up(run, error)
        return
    # In a thread: an agent can leave much to read and to classify.
    await asyncio.to_thread(_note, run, environment, written, step)


def _give_up(run: TrialRun, error: Exception) -> None:
    reason = run.describe(error).exception_message
    run.add_finding(
        FindingCode.CHANGES_CUT, f"the changes of the agent could not be listed: {reason}"
    )
    run.account = None


def _note(
    run: TrialRun, environment: Accounting, written: Sequence[Change], step: Step | None
) -> None:
    """Classify what was written before the verification."""
    account = run.account
    if account is None:
        return
    try:
        account.around = environment.surroundings()
    except Exception as error:  # noqa: BLE001 - an environment may raise anything; the trial goes on
        _give_up(run, error)
        return
    made = frozenset(
        each.path for each in written if each.kind == "directory" and each.how == "created"
    )
    text = join_instructions(run)
    classifier = Classifier(account.around, _find_named(run), made, text)
    placed = [msgspec.structs.replace(each, place=classifier.classify(each)) for each in written]
    account.before = [each for each in placed if each.when is Phase.SETUP]
    account.changes = [each for each in placed if each.when is Phase.AGENT]
    account.imports = find_test_imports(account.changes, account.around, made, text)
    account.unasked = find_unasked(account.changes, account.around, made, text)
    account.merged = find_merged(account.changes, account.around, text)
    account.is_noted = True
    system = [each for each in account.system if not each.is_installed]
    if system:
        run.add_finding(
            FindingCode.SYSTEM_CHANGED,
            f"the agent changed {count_of(len(system), 'system path')}; changes.jsonl lists them",
            files=_show(system),
        )
    if account.imports:
        run.add_finding(
            FindingCode.TEST_IMPORTS_CHANGED,
            f"{count_of(len(account.imports), 'file')} of the agent may be loaded by the tests",
            files=account.imports[:_MOST_SHOWN],
        )
    is_whole = not account.is_cut and len(account.changes) <= MOST_LISTED
    if not is_whole or not _has_digests(account):
        seen = f"{len(account.changes):,} paths were seen"
        run.add_finding(
            FindingCode.CHANGES_CUT,
            f"files of the agent have no digest in changes.jsonl; {seen}"
            if is_whole
            else f"the agent changed more than is listed; {seen}",
            seen=len(account.changes),
            listed=min(len(account.changes), MOST_LISTED),
        )
    write_account(run.paths, account, step)


async def note_late_changes(
    run: TrialRun, environment: Environment, step: Step | None = None
) -> None:
    """Record changes during the verification, and what the agent's programs opened in it."""
    account = run.account
    if account is None:
        return
    written = None
    if isinstance(environment, Accounting):
        known = {**account.marks, **{each.path: each.mark for each in account.changes}}
        try:
            written, _ = await environment.list_written(known, is_hashing=False)
        except Exception as error:  # noqa: BLE001 - an environment may raise anything; the score stands
            run.logger.warning("what changed during verification cannot be listed: %s", error)
    await asyncio.to_thread(_note_late, run, account, written, step)


def _note_late(
    run: TrialRun, account: ChangeAccount, written: Sequence[Change] | None, step: Step | None
) -> None:
    """Classify what was written during the verification, and what was opened."""
    if written is not None:
        made = frozenset(each.path for each in written if each.kind == "directory")
        classifier = Classifier(account.around, _find_named(run), made)
        account.late = [
            msgspec.structs.replace(each, when=Phase.VERIFICATION, place=classifier.classify(each))
            for each in written
            if each.when is Phase.AGENT
        ]
        if account.late:
            write_account(run.paths, account, step)
    late = (each for each in account.late if each.place is not Place.SYSTEM)
    find_opened(run, run.opened, {each.path for each in late})
    # None if the tests installed packages, which replace such files legitimately.
    if any(_PACKAGE_LISTS.search(each.path) for each in account.late):
        return
    late = (each for each in account.late if each.path not in account.restored)
    found = [each for each in late if _is_program(each, account)]
    if found:
        run.add_finding(
            FindingCode.SYSTEM_CHANGED_LATE,
            f"{count_of(len(found), 'program or library', 'programs or libraries')} of the image "
            f"changed while the tests ran, {found[0].path} for one",
            files=_show(found),
        )


def _is_program(change: Change, account: ChangeAccount) -> bool:
    if change.place is not Place.SYSTEM or not change.in_image or change.kind == "directory":
        return False
    directory, _, name = change.path.rpartition("/")
    return directory in account.around.search_path or bool(_LOADED.search(name))


def _find_named(run: TrialRun) -> frozenset[str]:
    """Paths that the instruction names, or the task collects."""
    task = run.spec.task
    named = find_named(join_instructions(run))
    asked = [*task.config.artifacts, *(one for step in task.steps for one in step.config.artifacts)]
    sources = (one if isinstance(one, str) else one.source for one in asked)
    return named | find_named("\n".join(sources))


def join_instructions(run: TrialRun) -> str:
    """All instructions of the task, joined."""
    task = run.spec.task
    return "\n".join([task.instruction, *(step.instruction for step in task.steps)])


def _show(changes: Sequence[Change]) -> list[dict[str, object]]:
    return [
        {"path": each.path, "how": each.how, "sha256": each.sha256 or None}
        for each in changes[:_MOST_SHOWN]
    ]


def write_account(paths: TrialPaths, account: ChangeAccount, step: Step | None) -> None:
    """Write changes.jsonl."""
    path = paths.step_dir(step.name) / "changes.jsonl" if step else paths.changes_path
    replace_file(path, render_account(account))


def render_account(account: ChangeAccount) -> bytes:
    """Render changes.jsonl, the agent's changes first."""
    every = [*account.changes, *account.late, *account.before]
    listed = every[:MOST_LISTED]
    header = Header(
        total=len(every),
        listed=len(listed),
        is_complete=not account.is_cut and len(listed) == len(every) and _has_digests(account),
        places=_count(str(each.place) for each in account.changes),
        phases=_count(str(each.when) for each in every),
    )
    encode = msgspec.json.Encoder().encode
    lines = [encode(header), *(encode(_as_stored(each)) for each in listed)]
    return b"\n".join(lines) + b"\n"


def _has_digests(account: ChangeAccount) -> bool:
    """Whether every regular file of the agent has its digest."""
    files = (each for each in account.changes if each.kind == "file" and each.how != "deleted")
    return all(each.sha256 for each in files)


def _count(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _as_stored(change: Change) -> Change:
    """Drop the mark, and escape bytes of names that are not valid Unicode."""
    try:
        change.path.encode()
        change.target.encode()
        change.end.encode()
    except UnicodeEncodeError:
        change = msgspec.structs.replace(
            change, path=_spelt(change.path), target=_spelt(change.target), end=_spelt(change.end)
        )
    return msgspec.structs.replace(change, mark="")


def _spelt(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


@runtime_checkable
class Pausing(Protocol):
    """An environment whose processes can be paused and resumed."""

    async def pause(self) -> int:
        """Stop every process of the agent; return how many could not be stopped.

        Until `resume`, no command runs in it, but its files can be read and kept.

        Raises:
            Exception: no process was stopped.
        """

    async def resume(self) -> None:
        """Continue the processes that `pause` stopped, and no others."""


@asynccontextmanager
async def paused(run: TrialRun, environment: Environment) -> AsyncIterator[None]:
    """Pause the agent's processes inside the context; add a finding if that fails.

    This way the digests in changes.jsonl match the files that a clean room starts from. With
    `--verifier-compat` the processes keep running, as in harbor.
    """
    if not isinstance(environment, Pausing) or run.spec.is_harbor_compatible:
        yield
        return
    reason = None
    try:
        if n_running := await environment.pause():
            reason = f"{count_of(n_running, 'process', 'processes')} could not be stopped"
    except Exception as error:  # noqa: BLE001 - an environment may raise anything; the trial goes on
        reason = run.describe(error).exception_message
    if reason is not None:
        run.add_finding(
            FindingCode.AGENT_NOT_PAUSED,
            f"the agent's processes ran on while its changes were recorded: {reason}",
            reason=reason,
        )
    try:
        yield
    finally:
        await environment.resume()
