"""Decide which slots of a plan are kept, run or redone, by the files in the job's directory.

    no directory of its trial                run
    result.json, whole                       kept
    … with an exception of a type that
      the user wants run again               redone
    … that was still to be retried when
      the runner was killed                  redone
    … torn, or of another trial              redone
    no result.json: it was killed            redone

A redone slot keeps its trial's name; the files of the earlier attempt move to attempts/N of that
trial when the new one begins. A slot is identified by its key, a digest of its content: a changed
task, agent or image makes a new slot with a new name, and the old trial stays but is no longer
counted. Directories that are not trials of this job are left alone. Does not write files.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from proctor.errors import JobError, WorkerLostError
from proctor.harbor.configs import RetryConfig
from proctor.harbor.documents import TRIAL
from proctor.harbor.stats import CANCELLED, Trial
from proctor.harbor.trial import claimed_trial
from proctor.job.attempts import count_attempts, is_being_kept, list_names
from proctor.job.foreign import ExpectedConfig, load_foreign, match_foreign
from proctor.job.retry import is_retried
from proctor.job.slots import Slot
from proctor.job.store import NamedSlot
from proctor.ledger.submission import ATTEMPTS
from proctor.record.ids import check_id


class SlotAction(StrEnum):
    """What to do with a slot."""

    KEEP = "keep"
    """Its trial has a result that counts."""
    RUN = "run"
    """It has not been begun."""
    REDO = "redo"
    """It has been begun; its files are kept as an attempt."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """A slot and what to do with it."""

    slot: Slot
    trial: str
    """Name of its trial."""
    deed: SlotAction
    why: str
    row: Trial | None = None
    """The counted values of a result that is kept."""


class Places(msgspec.Struct, frozen=True):
    """Which trial belongs to which slot."""

    names: Sequence[str | None]
    """By slot; None: no trial yet."""
    present: Collection[str]
    """Names of all directories in the job."""
    unplanned: Sequence[NamedSlot]
    """Trials of earlier plans that match no slot any more."""
    strangers: Sequence[str]
    """Directories that do not belong to this job."""
    foreign: Sequence[str] = ()
    """Those among the strangers that are trials."""


def place_slots(
    slots: Sequence[Slot],
    directory: Path,
    known: Sequence[NamedSlot],
    expect: Callable[[Slot], ExpectedConfig],
) -> Places:
    """Find each slot's trial: by the key it was planned with, else by its configuration."""
    present = _find_directories(directory)
    names, unplanned = _place_known(slots, known)
    strangers = present.difference(named.trial for named in known)
    # harbor may have run a trial that was planned but never begun, under a name of its own.
    empty = [place for place, name in enumerate(names) if name not in present]
    foreign = [trial for name in sorted(strangers) if (trial := load_foreign(str(directory), name))]
    found = match_foreign([expect(slots[place]) for place in empty], foreign) if foreign else {}
    for place, name in found.items():
        names[empty[place]] = name
    strangers.difference_update(found.values())
    return Places(
        names=names,
        present=present,
        unplanned=[named for named in unplanned if named.trial in present],
        strangers=sorted(strangers),
        foreign=[trial.name for trial in foreign if trial.name in strangers],
    )


def _place_known(
    slots: Sequence[Slot], known: Sequence[NamedSlot]
) -> tuple[list[str | None], list[NamedSlot]]:
    # Attempts at the same trial share a key and are assigned in the order they were planned.
    waiting: dict[str, deque[NamedSlot]] = {}
    for named in known:
        check_id(named.trial, "proctor.json: trial")
        waiting.setdefault(named.key, deque()).append(named)
    names: list[str | None] = []
    for slot in slots:
        queue = waiting.get(slot.key)
        names.append(queue.popleft().trial if queue else None)
    return names, [named for queue in waiting.values() for named in queue]


def _find_directories(directory: Path) -> set[str]:
    try:
        with os.scandir(directory) as entries:
            return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise JobError(f"{directory}: cannot be read: {error.strerror}") from error


class RerunRules(msgspec.Struct, frozen=True):
    """Rules for running trials again although they have a result."""

    also: Collection[str]
    """Exception types to run again."""
    retry: RetryConfig
    """The job's rule for retries."""

    def explain(self, row: Trial, trial_dir: str) -> str | None:
        """Return why this trial is run again; None if it is not."""
        exception = row.exception
        if exception is None:
            return None
        # A lost trial says nothing about its agent: it has no score, and gets another attempt.
        if exception in self.also or exception == WorkerLostError.__name__:
            return _ended_in(exception)
        # The runner was killed before it moved this attempt aside. harbor keeps no attempts and
        # writes no record: its trials have had their retries.
        is_ours = os.path.lexists(f"{trial_dir}/record.json")
        if is_ours and is_retried(exception, self.retry, count_attempts(trial_dir)):
            return f"it ended in {exception} and was to be retried"
        return None


def _ended_in(exception: str) -> str:
    return f"it ended in {exception}"


def find_unmatched(
    also: Collection[str], decisions: Sequence[Decision], directory: Path, unplanned: Iterable[str]
) -> list[str]:
    """Return notes about requested exception types for which no planned trial is run again.

    `unplanned` are the names of trials in the job's directory that are no longer planned.
    """
    said = {decision.why for decision in decisions}
    idle = sorted(kind for kind in also if kind != CANCELLED and _ended_in(kind) not in said)
    if not idle:
        return []
    there = sorted({row.exception for each in decisions if (row := each.row) and row.exception})
    others = f"; others ended in {', '.join(there)}" if there else ""
    former = {_find_exception(directory / name) for name in unplanned}
    replaced = "the trials that ended in it are no longer planned; new ones take their place"
    return [
        f"--also {kind}: {replaced if kind in former else f'no trial ended in it{others}'}"
        for kind in idle
    ]


def _find_exception(trial_dir: Path) -> str | None:
    with suppress(JobError):
        return claimed_trial(TRIAL.load(f"{trial_dir}/result.json")).exception
    return None


def decide(slot: Slot, name: str, trial_dir: str, again: RerunRules) -> Decision:
    """Decide about a slot whose trial has a directory."""
    if is_being_kept(trial_dir):
        return Decision(
            slot, name, SlotAction.REDO, "the runner was killed as it was to be run again"
        )
    try:
        document = TRIAL.load(f"{trial_dir}/result.json")
    except JobError as error:
        return _decide_broken(slot, name, trial_dir, error)
    # A directory may have been copied or renamed by hand.
    if document.trial_name != name:
        why = f"its result.json is that of {document.trial_name!r}"
        return Decision(slot, name, SlotAction.REDO, why)
    row = claimed_trial(document)
    if why_again := again.explain(row, trial_dir):
        return Decision(slot, name, SlotAction.REDO, why_again)
    return Decision(slot, name, SlotAction.KEEP, "it has a result", row)


def _decide_broken(slot: Slot, name: str, trial_dir: str, error: JobError) -> Decision:
    if os.path.lexists(f"{trial_dir}/result.json"):
        return Decision(slot, name, SlotAction.REDO, str(error))
    if list_names(trial_dir) in ([], [ATTEMPTS]):
        return Decision(slot, name, SlotAction.RUN, "it was to be run again")
    return Decision(slot, name, SlotAction.REDO, "it was stopped before it had a result")
