"""Tools of a forger who knows every file: what is changed is changed wherever it stands."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.exchange.intake import seal_offers
from proctor.ledger.api import Ledger
from tests.audit.directories import Document, edit_json, publish, read_json
from tests.forged.honest import HandedIn

type Change = Callable[[Document], object]


def set_reward_everywhere(trial: Path, reward: float, *, in_record: bool = True) -> None:
    """The reward in the file, in the result, and in the record."""
    (trial / "verifier" / "reward.txt").write_text(f"{reward:g}\n")
    rewards = {"rewards": {"reward": reward}}
    edit_json(trial / "result.json", lambda result: result.update(verifier_result=rewards))
    if in_record:
        edit_json(trial / "record.json", lambda record: _score(record, reward))


def _score(record: Document, reward: float) -> None:
    evaluation = record["evaluation"]
    evaluation["reward"] = reward
    evaluation["breakdown"] = {"reward": reward}


def edit_configs(handed: HandedIn, change: Change) -> None:
    """What every trial was told: in its config, its result, its record, and in the plan."""
    for trial in handed.job.glob("*__*"):
        edit_json(trial / "config.json", change)
        edit_json(trial / "result.json", lambda result: change(result["config"]))
        edit_json(trial / "record.json", lambda record: change(record["agent"]["configuration"]))
    edit_json(handed.job / "lock.json", lambda lock: [change(slot) for slot in lock["trials"]])


def remove_trials(handed: HandedIn, trials: list[Path]) -> None:
    """Trials gone from the disk, from the plan and from every count."""
    tasks = [read_json(trial / "result.json")["task_name"] for trial in trials]

    def unplan(lock: Document) -> None:
        for task in tasks:
            names = [slot["task"]["name"] for slot in lock["trials"]]
            del lock["trials"][names.index(task)]

    edit_json(handed.job / "lock.json", unplan)
    for trial in trials:
        shutil.rmtree(trial)
    left = len(read_json(handed.job / "lock.json")["trials"])
    edit_json(handed.job / "result.json", lambda result: result.update(n_total_trials=left))
    publish(handed.job)


def replace_text(path: Path, *pairs: tuple[str, str]) -> None:
    """Other words wherever they stand in a file."""
    text = path.read_text()
    for old, new in pairs:
        text = text.replace(old, new)
    path.write_text(text)


def copy_over(source: Path, target: Path) -> None:
    """A trial in the place of another, under the other's name and with an id of its own."""
    shutil.rmtree(target)
    shutil.copytree(source, target)
    for name in ("result.json", "config.json", "record.json"):
        replace_text(target / name, (source.name, target.name))
    edit_json(target / "result.json", lambda trial: trial.update(id="0" * 32))


def seal_anew(handed: HandedIn, keys: Path | None = None) -> None:
    """A new ledger of the same name, of what lies in the directory now."""
    origin = (handed.ledger / "checkpoint").read_text().splitlines()[0]
    shutil.rmtree(handed.ledger)
    with _keys_in(keys or handed.keys):
        found = find_trials(handed.job, JobOptions())
        seal_offers(found.offers, partial(Ledger.open_or_create, handed.ledger, origin=origin))


@contextmanager
def opened_by_owner(handed: HandedIn) -> Iterator[Ledger]:
    """The ledger, for whoever has its key."""
    with _keys_in(handed.keys), Ledger.open_or_create(handed.ledger) as ledger:
        yield ledger


@contextmanager
def _keys_in(place: Path) -> Iterator[None]:
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(place)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CONFIG_HOME"]
        else:
            os.environ["XDG_CONFIG_HOME"] = before


def edit_lines(ledger: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Other lines in a ledger's log; nothing is signed anew."""
    (segment,) = (ledger / "entries").glob("*.jsonl")
    segment.write_bytes(b"".join(change(segment.read_bytes().splitlines(keepends=True))))


def write_trace(trial: Path, commands: list[tuple[str, str]]) -> None:
    """A trace written by hand: commands and what they are said to have printed."""
    path = trial / "agent" / "trajectory.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    head = [line for line in lines if line.get("role") in (None, "system", "user")]
    when = next(line["timestamp"] for line in lines if line.get("role") == "tool_call")
    told: list[Document] = []
    for step, (command, printed) in enumerate(commands, 1):
        shared = {"step": step, "tool_name": "bash", "timestamp": when}
        told.append({"role": "tool_call", "command": command, **shared})
        told.append({"role": "tool_result", "stdout": printed, "exit_code": 0, **shared})
    path.write_text("".join(json.dumps(line) + "\n" for line in [*head, *told]))
