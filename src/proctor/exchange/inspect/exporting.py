"""Sealed trials as logs of Inspect, one .eval file for each group of trials.

    TIME_TASK_ID.eval      a zip archive: header.json, summaries.json, samples/SAMPLE_epoch_N.json
    losses.jsonl           what the format could not keep

Trials of one experiment, dataset, agent and model make one log. Trials that were imported from a
log go back into one with the same evaluation id: their samples byte for byte, `eval` and `plan` as
they were, and results made anew. A trial that does not count is left out, because a log counts all
its samples.
"""

import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proctor import __version__
from proctor.digest import sha256_hex
from proctor.errors import InspectError
from proctor.exchange.exporting import (
    NAME,
    Exported,
    Report,
    SelectedTrial,
    Selection,
    is_uncounted,
    list_withheld,
    new_directory,
    read_traces,
    read_trials,
    report_withheld,
    writable,
)
from proctor.exchange.inspect.conversion import make_sample, make_sample_id
from proctor.exchange.inspect.reading import LARGEST_SAMPLE, parse_sample
from proctor.exchange.inspect.sample import ENTRIES, PROCTOR, Sample, convert_value, read_entries
from proctor.exchange.inspect.trial import EVAL, SAMPLE
from proctor.files import read_small
from proctor.record.ids import make_id
from proctor.reward.metric import mean
from proctor.traces.entry import Object
from proctor.traces.loss import Loss, list_losses

# Archives that are open at a time: each takes a file descriptor.
_MOST_OPEN = 32
_LONGEST_INPUT = 1000
_DATE = (1980, 1, 1, 0, 0, 0)
_ID_LENGTH = 22
_LONGEST_TASK = 80
_PLAIN = str.maketrans(":+", "--")


class Key(msgspec.Struct, frozen=True):
    """What the trials of one log share."""

    experiment: str
    dataset: str | None
    agent: str
    agent_version: str | None
    model: str
    library: str
    """The software that ran them."""
    library_version: str
    profile: str | None
    """The scoring rules."""


@dataclass(slots=True)
class _Log:
    """A log that is being written."""

    path: Path
    eval: Object
    plan: Object
    is_ours: bool
    """Whether `eval` was made here, not imported."""
    summaries: list[Object] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    """The values that are numbers, by scorer."""
    taken: set[tuple[str, int]] = field(default_factory=set)
    """Ids and epochs of its samples."""
    archive: zipfile.ZipFile | None = None

    def find_epoch(self, sample: str, asked: int) -> int:
        """The epoch that was asked for, or the first that is free."""
        if (sample, asked) not in self.taken:
            return asked
        return next(n for n in range(1, len(self.taken) + 2) if (sample, n) not in self.taken)

    def add(self, sample: Sample, data: bytes) -> None:
        """Write a sample, and what the list of samples says of it."""
        self.taken.add((str(sample.id), sample.epoch))
        self.write(f"samples/{sample.id}_epoch_{sample.epoch}.json", data)
        self.summaries.append(_summarize(sample))
        for name, value in sample.values.items():
            number = convert_value(value)
            if number is not None:
                self.values.setdefault(name, []).append(number)

    def write(self, name: str, data: bytes) -> None:
        """Write a member."""
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path, "a", zipfile.ZIP_DEFLATED)
        info = zipfile.ZipInfo(name, _DATE)
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
        self.archive.writestr(info, data)

    def close(self) -> None:
        """Write the directory of the archive; it can be opened again."""
        if self.archive is not None:
            self.archive.close()
            self.archive = None

    def finish(self) -> None:
        """Write the list of samples and the header, and give the file its name."""
        header = _make_header(self)
        # Texts of imported samples may have lone surrogates, which only ASCII can carry.
        self.write("summaries.json", json.dumps(self.summaries).encode())
        self.write("header.json", json.dumps(header, indent=2).encode())
        self.close()
        began = header["eval"].get("created") or "undated"
        task = make_id(str(self.eval.get("task")).replace("_", "-"))[:_LONGEST_TASK]
        name = make_id(f"{began.translate(_PLAIN)}_{task}_{self.path.stem}")
        self.path.rename(self.path.with_name(f"{name}.eval"))


class _Logs:
    """The logs of an export."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._logs: dict[tuple[str, ...] | Key, _Log] = {}
        self._open: dict[int, _Log] = {}

    def find(self, key: tuple[str, ...] | Key, eval_: Object, plan: Object) -> _Log:
        """The log of a group, to write a sample to."""
        log = self._logs.get(key)
        if log is None:
            stem = sha256_hex(msgspec.json.encode(key))[:_ID_LENGTH]
            log = _Log(self._place / f"{stem}.eval", eval_, plan, is_ours=isinstance(key, Key))
            self._logs[key] = log
        # Last, because the first is closed when there are too many.
        self._open.pop(id(log), None)
        self._open[id(log)] = log
        if len(self._open) > _MOST_OPEN:
            self._open.pop(next(iter(self._open))).close()
        return log

    def finish(self) -> None:
        """Finish all logs."""
        for log in self._logs.values():
            if log.summaries:
                log.finish()

    def close(self) -> None:
        """Close what is open."""
        for log in self._logs.values():
            log.close()


def export_trials(selection: Selection, target: Path) -> Exported:
    """Write logs below a new directory."""
    withheld = list_withheld(selection.ledger)
    with new_directory(target) as place, (place / NAME).open("xb") as file:
        report, logs = Report(file), _Logs(place)
        try:
            for trial in read_trials(selection, report):
                report_withheld(trial, withheld, report)
                if is_uncounted(trial, report):
                    continue
                with writable(trial, report):
                    original = _find_original(trial)
                    if original is None or not _add_original(trial, original, logs, report):
                        _add_converted(trial, logs, report)
                    report.trials += 1
            logs.finish()
        finally:
            logs.close()
    return report.exported(target, target / NAME)


class _Header(msgspec.Struct):
    """inspect_eval.json."""

    eval: Object
    plan: Object = {}


@dataclass(frozen=True, slots=True)
class _Original:
    """The files of a trial that was imported from a log."""

    sample: Sample
    data: bytes
    eval: Object
    plan: Object
    evaluation: str


def _find_original(trial: SelectedTrial) -> _Original | None:
    """The sample that a trial was imported from; None if it was not, or if it cannot be used."""
    source = trial.entry.source
    if source is None or source.kind != "inspect" or not {SAMPLE, EVAL} <= set(trial.traced.files):
        return None
    try:
        with trial.traced.open_file(SAMPLE) as path:
            data = read_small(path, LARGEST_SAMPLE)
        with trial.traced.open_file(EVAL) as path:
            given = msgspec.json.decode(read_small(path, LARGEST_SAMPLE), type=_Header)
        sample = parse_sample(data, SAMPLE)
    except (OSError, InspectError, msgspec.MsgspecError):
        return None
    if make_sample_id(str(sample.id)) != str(sample.id):
        return None
    return _Original(sample, data, given.eval, given.plan, str(given.eval.get("eval_id")))


def _add_original(trial: SelectedTrial, found: _Original, logs: _Logs, report: Report) -> bool:
    """Write a sample as it was imported; False if its id and epoch are taken."""
    key = (trial.record.experiment_id, found.evaluation, str(found.eval.get("run_id")))
    log = logs.find(key, found.eval, found.plan)
    if (str(found.sample.id), found.sample.epoch) in log.taken:
        return False
    log.add(found.sample, found.data)
    sealed = {name: value for name, value in trial.document().items() if name in _BESIDE}
    report.lose(trial.name, list_losses(sealed, {}))
    return True


# Fields of an entry that are not made from the sample.
_BESIDE = frozenset({"findings", "score"})


def _add_converted(trial: SelectedTrial, logs: _Logs, report: Report) -> None:
    record, entry = trial.record, trial.entry
    library = entry.source.kind if entry.source else "proctor"
    versions = record.environment.tool_versions or {}
    key = Key(
        experiment=record.experiment_id,
        dataset=trial.row.dataset_id,
        agent=record.agent.adapter,
        agent_version=record.agent.adapter_revision,
        model=record.agent.model,
        library=library,
        library_version=versions.get(library, "unknown"),
        profile=entry.score.profile if entry.score else None,
    )
    log = logs.find(key, _make_eval(key), {"steps": [{"solver": key.agent}]})
    document, traces = trial.document(), read_traces(trial)
    attempt = trial.entry.slot.attempt + 1 if trial.entry.slot else 1
    epoch = log.find_epoch(make_sample_id(trial.record.task.task_id), max(1, attempt))
    data = json.dumps(
        make_sample(trial, document, traces, epoch), ensure_ascii=False, separators=(",", ":")
    ).encode()
    sample = parse_sample(data, trial.name)
    kept = {name: value for name, value in sample.own.items() if name != ENTRIES}
    losses = list(list_losses(document, kept))
    if trial.entry.evidence:
        files = f"{len(trial.entry.evidence)} files"
        losses.append(Loss("evidence", files, "the log has their digests, not their bytes"))
    entries = [entry for trace in traces for entry in trace.entries]
    before = msgspec.to_builtins(entries)
    losses += list_losses(before, msgspec.to_builtins(read_entries(sample, [])), "entries")
    losses += [loss for trace in traces for loss in trace.losses]
    if len(traces) > 1:
        why = "the messages of all steps stand one after the other, without their names"
        losses.append(Loss("steps", f"{len(traces)}", why))
    log.add(sample, data)
    report.lose(trial.name, losses)


def _make_eval(key: Key) -> Object:
    name, _, version = (key.dataset or key.experiment).rpartition("@")
    digest = sha256_hex(msgspec.json.encode(key))
    return {
        "eval_id": digest[:_ID_LENGTH],
        "run_id": digest[_ID_LENGTH : 2 * _ID_LENGTH],
        "task": name or version,
        "task_id": digest[-_ID_LENGTH // 2 :],
        "task_version": version if name else 0,
        "dataset": {"name": key.dataset or key.experiment},
        "model": key.model,
        "solver": key.agent,
        "config": {},
        "packages": {"proctor": __version__},
        "metadata": {PROCTOR: {"experiment_id": key.experiment}},
        "scorers": [{"name": "reward"}],
    }


def _make_header(log: _Log) -> Object:
    samples = log.summaries
    began, ended = (
        sorted(each[name] for each in samples if name in each) or [""]
        for name in ("started_at", "completed_at")
    )
    ids = list(dict.fromkeys(each["id"] for each in samples))
    own = {
        "created": began[0],
        "dataset": {**log.eval.get("dataset", {}), "samples": len(ids), "sample_ids": ids},
        "config": {"epochs": max(each["epoch"] for each in samples)},
    }
    return {
        "version": 2,
        "status": "success",
        "eval": {**log.eval, **own} if log.is_ours else log.eval,
        "plan": log.plan,
        "results": {
            "total_samples": len(samples),
            "completed_samples": sum("error" not in each for each in samples),
            "scores": [
                _make_score(name, values, len(samples)) for name, values in log.values.items()
            ],
        },
        "stats": {"started_at": began[0], "completed_at": ended[-1]},
    }


def _make_score(name: str, values: list[float], n_samples: int) -> Object:
    return {
        "name": name,
        "scorer": name,
        "scored_samples": len(values),
        "unscored_samples": n_samples - len(values),
        "params": {},
        "metrics": {"mean": {"name": "mean", "value": mean(values), "params": {}}},
    }


def _summarize(sample: Sample) -> Object:
    """What the list of samples says of one."""
    given = sample.input
    texts = [given] if isinstance(given, str) else [message.content for message in given]
    words = "\n".join(text for text in texts if isinstance(text, str))
    summary: Object = {
        "id": sample.id,
        "epoch": sample.epoch,
        "input": words[:_LONGEST_INPUT],
        "target": sample.target,
        "scores": msgspec.to_builtins(sample.scores) or None,
        "model_usage": sample.model_usage or None,
        "started_at": sample.started_at,
        "completed_at": sample.completed_at,
        "uuid": sample.uuid,
        "total_time": sample.total_time,
        "error": sample.failure,
        "limit": sample.limit and sample.limit.type,
        "completed": True,
        "message_count": len(sample.messages),
    }
    return {name: each for name, each in summary.items() if each is not None}
