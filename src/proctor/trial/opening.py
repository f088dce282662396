"""The beginning of a trial: its directories, config.json, its first record, and its log."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote_from_bytes

from pydantic_core import to_json

from proctor.files import replace_file
from proctor.harbor.configs import TrialConfig
from proctor.harbor.trial_result import AgentInfo, LocalTaskId, TaskId, TrialResult, task_id_of
from proctor.trial.clock import Clock
from proctor.trial.journal import open_journal
from proctor.trial.making import find_model
from proctor.trial.order import Kinds
from proctor.trial.plan import Plan
from proctor.trial.recording import Recording
from proctor.trial.secrets import find_redactor
from proctor.trial.sitting import Sitting, Watch, host_variables


@contextmanager
def opened(plan: Plan, kinds: Kinds, watch: Watch, clock: Clock) -> Iterator[Sitting]:
    """A trial that has begun; no file of it is there yet."""
    redactor = plan.shared.once("redactor", lambda: find_redactor(plan, host_variables()))
    with open_journal(f"{plan.place}/trial.log", redactor) as logger:
        yield Sitting(
            plan=plan,
            kinds=kinds,
            clock=clock,
            watch=watch,
            logger=logger,
            redactor=redactor,
            result=_begin_result(plan, clock),
            recording=Recording(plan, redactor),
        )


def _begin_result(plan: Plan, clock: Clock) -> TrialResult:
    config = plan.config
    name = config.agent.name or config.agent.import_path or "unknown"
    return TrialResult(
        task_name=plan.task.name,
        trial_name=config.trial_name,
        trial_uri=_find_uri(plan),
        task_id=plan.shared.once("task_id", lambda: _find_task_id(plan)),
        source=config.task.source,
        task_checksum=plan.digests.task_checksum,
        config=config,
        agent_info=AgentInfo(
            name=name, version="unknown", model_info=find_model(config.agent.model_name)
        ),
        started_at=clock.now(),
    )


def _find_uri(plan: Plan) -> str:
    uri = plan.shared.once("uri", lambda: Path(plan.real_trials_dir).as_uri().rstrip("/"))
    return f"{uri}/{quote_from_bytes(os.fsencode(plan.config.trial_name))}"


def _find_task_id(plan: Plan) -> TaskId:
    try:
        return task_id_of(plan.config)
    except ValueError:
        return LocalTaskId(path=str(plan.task.directory))


def open_files(sitting: Sitting) -> None:
    """Make the trial's directories and its first files.

    Raises:
        OSError: they cannot be made.
    """
    place = sitting.plan.place
    _make_directory(place)
    for name in ("agent", "verifier", "artifacts"):
        _make_directory(f"{place}/{name}")
    replace_file(f"{place}/config.json", render_config(sitting.plan).encode())
    sitting.recording.begin(sitting.result)
    os.close(os.open(f"{place}/trial.log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))


def _make_directory(directory: str) -> None:
    try:
        os.mkdir(directory)
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise


def render_config(plan: Plan) -> str:
    """The text of config.json: attempts at the same task differ in their names alone."""
    before, after = plan.shared.once("config", lambda: _split_config(plan.config))
    return f"{before}{to_json(plan.config.trial_name).decode()}{after}"


def _split_config(config: TrialConfig) -> tuple[str, str]:
    """The text of config.json before and after the trial's name."""
    text = config.model_dump_json(indent=4)
    # A line end stands only between the lines of the text: this is the field, and never a value.
    before, key, rest = text.partition('\n    "trial_name": ')
    _, comma, after = rest.partition(",\n")
    return f"{before}{key}", f"{comma}{after}"
