"""The one thread that appends to a served ledger.

Submissions that arrive while another one is being written are appended together: one write, one
signature. Each of them is sealed whole or not at all.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import LedgerError, NotSealedError, ProctorError
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.entry import AnyEntry, MachineEntry, PlanEntry, SupersedeEntry
from proctor.ledger.machines import Machines, load_machines
from proctor.ledger.note import Signer
from proctor.ledger.place import open_writer
from proctor.ledger.reader import LedgerWriter
from proctor.ledger.sealing import NewEntry, append_trials
from proctor.serve.intake import RefusedError, Submitted

type Placed = list[tuple[int, bool]]
"""The position of each entry, and whether it is new."""
# Entries that share a signature, at most.
_TOGETHER = 1000


@dataclass(slots=True)
class _Job:
    """Something to be written, and where its result goes."""

    submitted: Submitted | None = None
    act: Callable[[LedgerWriter], Any] | None = None
    done: Future[Any] = field(default_factory=Future)


class Writer:
    """Appends what it is given, in the order that it arrives."""

    def __init__(
        self,
        directory: Path,
        key: Signer,
        removed: Collection[str] = (),
    ) -> None:
        """`removed`: digests of evidence that was removed, perhaps since it was looked for."""
        self._directory = directory
        self._key = key
        self._removed = removed
        self._artifacts = FileArtifacts(directory)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._machines = Machines()
        # Positions of the entries that `_machines` was read from.
        self._enrolments: list[int] = []
        opened: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._work, args=(opened,), name="writer", daemon=True
        )
        self._thread.start()
        opened.result()

    @property
    def machines(self) -> Machines:
        """The machines that are enrolled now."""
        return self._machines

    async def submit(self, submitted: Submitted) -> Placed:
        """Append entries that were checked."""
        placed: Placed = await self._put(_Job(submitted=submitted))
        return placed

    async def run[Result](self, act: Callable[[LedgerWriter], Result]) -> Result:
        """Do something with the ledger that no append comes between."""
        found: Result = await self._put(_Job(act=act))
        return found

    def close(self) -> None:
        """Finish what was begun, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    async def _put(self, job: _Job) -> Any:
        if not self._thread.is_alive():
            raise LedgerError(f"{self._directory}: the server is shutting down")
        self._jobs.put(job)
        return await asyncio.wrap_future(job.done)

    def _work(self, opened: "Future[None]") -> None:
        # An SQLite connection may be used only in the thread that opened it.
        try:
            ledger = open_writer(self._directory, self._key)
            ledger.refresh()
            ledger.check_key()
            self._load_machines(ledger)
        except BaseException as error:  # noqa: BLE001 - raised where the thread was started
            opened.set_exception(error)
            return
        opened.set_result(None)
        with ledger:
            is_open = True
            while is_open:
                jobs, is_open = self._take()
                self._do(ledger, jobs)
                # While clients prepare what they submit next. If something is wrong here, the next
                # job meets it again, and its client gets the error.
                with contextlib.suppress(Exception):
                    ledger.refresh()

    def _take(self) -> tuple[list[_Job], bool]:
        """What has arrived by now, at least one job, and whether more may come."""
        jobs: list[_Job] = []
        size = 0
        job = self._jobs.get()
        while job is not None:
            # From here on, it cannot be cancelled any more.
            if job.done.set_running_or_notify_cancel():
                jobs.append(job)
            size += len(job.submitted or ())
            if size >= _TOGETHER or self._jobs.empty():
                return jobs, True
            job = self._jobs.get()
        return jobs, False

    def _do(self, ledger: LedgerWriter, jobs: Sequence[_Job]) -> None:
        trials = [job for job in jobs if job.submitted is not None and job.submitted.trials]
        for job in jobs:
            if job not in trials:
                _finish([job], partial(self._do_one, ledger, job))
        # If one of several is refused, append each by itself to see which.
        if not trials or _finish(trials, partial(self._append, ledger, trials)):
            return
        for job in trials:
            _finish([job], partial(self._append, ledger, [job]))

    def _do_one(self, ledger: LedgerWriter, job: _Job) -> list[Any]:
        if job.act is not None:
            result = job.act(ledger)
            self._load_machines(ledger)
        else:
            entries = job.submitted.others if job.submitted is not None else []
            with ledger.writing():
                self._check_enrolled(ledger, entries)
                result = append_others(ledger, entries)
        return [result]

    def _append(self, ledger: LedgerWriter, jobs: Sequence[_Job]) -> list[Placed]:
        parts = [job.submitted.trials for job in jobs if job.submitted is not None]
        news = [new for part in parts for new in part]
        with ledger.writing():
            self._check_enrolled(ledger, [new.entry for new in news])
            self._check_evidence(ledger, news)
            answers = iter(append_trials(ledger, news))
        # `islice`, because zip would take one answer more than it uses.
        return [[(each.seq, each.is_new) for each in islice(answers, len(part))] for part in parts]

    def _check_evidence(self, ledger: LedgerWriter, news: Sequence[NewEntry]) -> None:
        """Refuse evidence that was removed since the entries were checked.

        The same thread removes what no entry names: see uploads.py.
        """
        if not self._removed:
            return
        for new in news:
            # The evidence of a trial that is sealed already may be withheld.
            if ledger.find_sealed(new.subject.experiment_id, new.subject.trial_id) is not None:
                continue
            for file in new.entry.evidence:
                if file.sha256 in self._removed and not self._artifacts.holds(file.sha256):
                    raise NotSealedError(f"the evidence {file.path!r} was removed; send it again")

    def _load_machines(self, ledger: LedgerWriter) -> None:
        found = ledger.index.places("machine")
        if found != self._enrolments:
            self._machines, self._enrolments = load_machines(ledger), found

    def _check_enrolled(self, ledger: LedgerWriter, entries: Sequence[AnyEntry]) -> None:
        """Refuse machines that were revoked since their entries were checked.

        Called under the lock: another process may have revoked them.
        """
        self._load_machines(ledger)
        for entry in entries:
            signed = entry.signed
            if signed is not msgspec.UNSET and signed.machine not in self._machines.keys:
                raise NotSealedError(f"the machine {signed.machine!r} was revoked")


def _finish(jobs: Sequence[_Job], act: Callable[[], list[Any]]) -> bool:
    """Give each job its result, or the error; False if several were refused together."""
    try:
        results = act()
    except BaseException as error:  # noqa: BLE001 - the requests report it
        if len(jobs) > 1 and isinstance(error, ProctorError):
            return False
        for job in jobs:
            job.done.set_exception(error)
        return True
    for job, result in zip(jobs, results, strict=True):
        job.done.set_result(result)
    return True


def append_others(ledger: LedgerWriter, entries: Sequence[AnyEntry]) -> Placed:
    """Append plans and supersessions, except for those that are there; call it inside `writing`.

    Raises:
        NotSealedError: a superseded trial is not sealed.
        LedgerError: the ledger cannot be written.
    """
    ledger.refresh()
    before = [_find_same(ledger, entry) for entry in entries]
    for entry, found in zip(entries, before, strict=True):
        subject = entry.subject if isinstance(entry, SupersedeEntry) and found is None else None
        if subject is None:
            continue
        sealed = ledger.find_sealed(subject.experiment_id, subject.trial_id)
        if sealed is None or sealed.record != subject.record:
            raise NotSealedError(
                f"trial {subject.trial_id} of {subject.experiment_id} cannot be superseded: it is "
                f"not sealed with the record {subject.record}"
            )
    new = [entry for entry, found in zip(entries, before, strict=True) if found is None]
    appended = iter(ledger.append(new) if new else ())
    return [(next(appended), True) if found is None else (found, False) for found in before]


def _find_same(ledger: LedgerWriter, entry: AnyEntry) -> int | None:
    """The position of the same entry, if it was appended before."""
    match entry:
        case SupersedeEntry():
            places = ledger.index.remarks(record=entry.subject.record, kind="supersede")
        case PlanEntry():
            places = ledger.index.places("plan")
        case _:
            places = []
    draft = _strip(entry)
    for seq in places:
        found = ledger.entry(seq)
        if isinstance(found, SupersedeEntry | PlanEntry) and _strip(found) == draft:
            return seq
    return None


def _strip(entry: AnyEntry) -> AnyEntry:
    return msgspec.structs.replace(entry, at="", seq=0, signed=msgspec.UNSET)


def enrol(ledger: LedgerWriter, name: str, key: str, author: str) -> str:
    """Enrol a machine, unless its key is enrolled; returns the name under which it is.

    Raises:
        RefusedError: the key was revoked or is invalid, or the name is another machine's.
        LedgerError: the ledger cannot be written.
    """
    with ledger.writing():
        ledger.refresh()
        machines = load_machines(ledger)
        for known, found in machines.keys.items():
            if str(found) == key:
                return known
        entries = [ledger.entry(seq) for seq in ledger.index.places("machine")]
        if any(isinstance(each, MachineEntry) and each.key == key for each in entries):
            raise RefusedError(f"the key {key} was revoked; this machine needs another key")
        entry = MachineEntry(at="", seq=0, name=name, key=key, is_revoked=False, author=author)
        if fault := machines.take(entry):
            raise RefusedError(f"the machine {name[:80]!r} cannot be enrolled: it {fault}")
        ledger.append([entry])
    ledger.refresh()
    return name


def revoke(ledger: LedgerWriter, name: str, author: str) -> int:
    """Revoke a machine; returns the position of the entry.

    Raises:
        LedgerError: no machine of this name is enrolled.
    """
    with ledger.writing():
        ledger.refresh()
        machines = load_machines(ledger)
        key = machines.keys.get(name)
        if key is None:
            known = ", ".join(machines.keys) or "none"
            raise LedgerError(f"no machine {name!r} is enrolled; enrolled are: {known}")
        entry = MachineEntry(at="", seq=0, name=name, key=str(key), is_revoked=True, author=author)
        (seq,) = ledger.append([entry])
    return seq
