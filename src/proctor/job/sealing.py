"""Seal the trials of a job as they end, several with one signature.

Sealing waits for the disk, so one thread does it outside the event loop. Trials that end meanwhile
are sealed together. A trial that cannot be sealed is reported and stays where it is; the job
continues, and `proctor resume` or `proctor ledger seal` tries again.
"""

import contextlib
import itertools
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from proctor.errors import InputError, ProctorError
from proctor.harbor.agents import CHAT, CHAT_KEY, SHORTEST_CHAT_KEY, find_keys
from proctor.harbor.configs import AgentConfig, JobConfig
from proctor.harbor.env import is_sensitive, resolve_env
from proctor.harbor.stats import ADHOC
from proctor.job.attempts import list_names
from proctor.job.options import LedgerOptions, SealedTrials
from proctor.job.planning import Prepared
from proctor.job.request import Request
from proctor.job.slots import Slot
from proctor.ledger.belonging import REMEDY, Content, find_content, label_agent
from proctor.ledger.keys import SigningKey, find_key
from proctor.ledger.lock import check_local
from proctor.ledger.log import is_ledger
from proctor.ledger.place import open_or_create, open_reader, open_writer
from proctor.ledger.query import list_trials
from proctor.ledger.reader import LedgerReader, LedgerWriter
from proctor.ledger.run_plan import digest_settings
from proctor.ledger.sealing import Sealed, Secrets
from proctor.ledger.submission import ATTEMPTS, has_record
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.trial_sealing import seal_trials

# Checking that the trials of a new job belong to their experiment


_SHOWN = 3


def check_experiment(ledger: LedgerReader, prepared: Prepared) -> None:
    """Check that a new job's trials belong to the experiment they would be sealed under.

    Raises:
        InputError: they do not; no trial was begun.
        DamageError: the log does not match its checkpoint.
    """
    experiment = prepared.settings.experiment or prepared.config.job_name
    content = find_content(ledger, experiment)
    if content is None:
        return
    outside = list(dict.fromkeys(_find_outside(content, prepared)))
    if outside:
        more = f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else ""
        raise InputError(
            f"{ledger.where}: the experiment {experiment!r} {content.description}; this job would "
            f"add {', '.join(outside[:_SHOWN])}{more}. {REMEDY}"
        )


def _find_outside(content: Content, prepared: Prepared) -> Iterator[str]:
    digests = {id(agent): _digest(agent, prepared) for agent in prepared.config.agents}
    for slot in prepared.slots:
        digest, agent = digests[id(slot.agent)], slot.agent
        task = slot.planned.task.name
        if digest not in content.agents:
            name = label_agent(agent.name or agent.import_path or "", agent.model_name)
            same = name in content.agents.values()
            yield f"the agent {name}{' with other settings' if same else ''}"
        elif not {(None, task), (_dataset_of(slot, prepared), task)} & content.tasks:
            yield f"the task {task} of {_dataset_of(slot, prepared)}"
        elif content.attempts is not None and (
            content.sealed[digest, task] + slot.attempt > content.attempts
        ):
            yield f"attempt {content.sealed[digest, task] + slot.attempt} at {task}"


def _digest(agent: AgentConfig, prepared: Prepared) -> str:
    instructions = prepared.config.model_dump(mode="json", include={"extra_instruction_paths"})
    return digest_settings({**instructions, "agent": agent.model_dump(mode="json")})


def _dataset_of(slot: Slot, prepared: Prepared) -> str:
    """The trial's dataset, as shown in lists and on boards."""
    declared = prepared.settings.dataset_id or slot.planned.dataset_id
    return declared or slot.planned.config.source or ADHOC


# Most trials that share a signature.
_TOGETHER = 100


class Sealer:
    """Accepts trials from any thread as they end; `close` returns when all are sealed."""

    def __init__(self, options: LedgerOptions, key: SigningKey, secrets: Secrets) -> None:
        self._options = options
        self._key = key
        self._secrets = secrets
        # None ends the thread.
        self._ended: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="sealer", daemon=True)
        self.trials = SealedTrials(options.directory)
        self._died: BaseException | None = None
        self._thread.start()

    def put(self, trial: Path) -> None:
        """Queue a trial for sealing, or only its attempts if it was given up."""
        self._ended.put(trial)

    def close(self) -> None:
        """Wait until everything that can be sealed is sealed; re-raises unexpected errors."""
        self._ended.put(None)
        self._thread.join()
        if self._died is not None:
            raise self._died

    def _work(self) -> None:
        try:
            self._seal_all()
        except ProctorError as error:
            self.trials.refused.append(f"no trial from here on: {error}")
        except BaseException as error:  # noqa: BLE001 - a thread's end is silent; `close` raises it
            self._died = error

    def _seal_all(self) -> None:
        # An SQLite connection may be used only in the thread that opened it.
        with open_writer(self._options.directory, self._key) as ledger:
            is_open = True
            while is_open:
                batch, is_open = self._take()
                if batch:
                    self._seal(ledger, batch)
                    self.trials.unrecorded += [one.name for one in batch if _lacks_record(one)]

    def _take(self) -> tuple[list[Path], bool]:
        """Return the trials that have ended by now, at least one, and whether more may come."""
        batch: list[Path] = []
        trial = self._ended.get()
        while trial is not None:
            batch.append(trial)
            # Do not wait for a full batch: a trial is sealed as soon as possible.
            if len(batch) == _TOGETHER or self._ended.empty():
                return batch, True
            trial = self._ended.get()
        return batch, False

    def _seal(self, ledger: LedgerWriter, batch: list[Path]) -> None:
        try:
            self._count(seal_trials(ledger, batch, self._secrets))
        except ProctorError as error:
            if len(batch) == 1:
                self.trials.refused.append(str(error))
                return
            # One of the batch is refused: seal each by itself to see which.
            for trial in batch:
                self._seal(ledger, [trial])

    def _count(self, answers: Sequence[Sealed]) -> None:
        new = [answer for answer in answers if answer.is_new]
        self.trials.sealed += sum(answer.status == "sealed" for answer in new)
        self.trials.waiting += sum(answer.status == "waiting" for answer in new)
        self.trials.diagnostic += sum(answer.status == "diagnostic" for answer in new)


def _lacks_record(trial: Path) -> bool:
    """Whether a trial ended without a record; one that was given up has nothing but attempts."""
    return not has_record(trial) and list_names(str(trial)) != [ATTEMPTS]


def check_ledger(request: Request) -> None:
    """Check that trials can be sealed; creates a missing key, but not the ledger."""
    options = request.ledger
    if options is None:
        return
    key = find_key(options.key_file, request.options.host)
    if is_ledger(options.directory):
        with open_writer(options.directory, key) as ledger:
            ledger.refresh()
            ledger.check_key()
    else:
        check_local(options.directory)
    check_belonging(request)


def check_belonging(request: Request) -> None:
    """Refuse a new job whose trials do not belong to its experiment.

    A resumed job was admitted when it began.
    """
    options = request.ledger
    if options is None or options.extends or request.is_begun:
        return
    if is_ledger(options.directory):
        with open_reader(options.directory) as ledger:
            check_experiment(ledger, request.prepared)


@contextlib.contextmanager
def sealing(
    options: LedgerOptions | None, config: JobConfig, host: Mapping[str, str]
) -> Iterator[Sealer | None]:
    """Provide a sealer while a job runs, or None; seal everything that can be sealed on exit."""
    if options is None:
        yield None
        return
    key = find_key(options.key_file, host)
    # Created before any trial runs, so that a missing permission is reported at once.
    ledger, is_new = open_or_create(options.directory, key)
    ledger.close()
    sealer = Sealer(options, key, Secrets(find_secrets(config, host)))
    sealer.trials.is_new_ledger = is_new
    try:
        yield sealer
    finally:
        sealer.close()


def find_secrets(config: JobConfig, host: Mapping[str, str]) -> dict[str, str]:
    """Return the job's variables whose names mark them as secret, and the keys of its agents.

    If two agents have different values under one name, the second is named `NAME (2)`.
    """
    owned = [(one.env, find_keys(one, host)) for one in config.agents]
    owned += [(config.environment.env, {}), (config.verifier.env, {})]
    is_chat = any(one.name == CHAT for one in config.agents)
    found: dict[str, str] = {}
    for env, taken in owned:
        given = {name: value for name, value in env.items() if is_sensitive(name)}
        for name, value in (taken | resolve_env(given, host)).items():
            if not (is_chat and _is_word(name, value)):
                _add(found, name, value)
    return found


def _add(found: dict[str, str], name: str, value: str) -> None:
    names = itertools.chain([name], (f"{name} ({number})" for number in itertools.count(2)))
    found[next(each for each in names if found.get(each, value) == value)] = value


def _is_word(name: str, value: str) -> bool:
    """Whether this is a placeholder for an endpoint that needs no key."""
    return name == CHAT_KEY and len(value) < SHORTEST_CHAT_KEY


def find_sealed_names(directory: Path, experiment: str) -> set[str]:
    """The ids of an experiment's trials in a ledger."""
    with open_reader(directory) as ledger:
        return {row.trial_id for row in list_trials(ledger, TrialFilter(experiment=experiment))}
