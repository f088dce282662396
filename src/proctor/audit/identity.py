"""Compare each trial with its directory, its config, its times and its slot in the plan."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, starmap

import msgspec
from msgspec.structs import asdict

from proctor.audit.duplicates import MOST, load_with_duplicates, report_duplicates, report_too_many
from proctor.audit.findings import Finding, Kind
from proctor.audit.mixing import limits_of
from proctor.errors import JobError
from proctor.files import read_inside
from proctor.harbor.documents import (
    Decoder,
    LockDocument,
    Phase,
    TrialConfigDocument,
    find_odd_usage,
)
from proctor.harbor.job import Job, Slot, agent_slot, moment
from proctor.harbor.trial import FoundTrial
from proctor.json_values import has_more_values
from proctor.sentence import shown

# In these versions of lock.json, a slot has every setting of a trial's config that is compared.
_PLAN_SCHEMAS = (1, 3)


class Phases(msgspec.Struct, frozen=True, gc=False):
    """The times in a trial's result.json."""

    environment_setup: Phase | None = None
    agent_setup: Phase | None = None
    agent_execution: Phase | None = None
    verifier: Phase | None = None


_PHASES = Decoder(Phases)

type Settings = dict[str, object]
"""The settings in a config that affect a score, by name."""


def audit_identity(job: Job) -> Iterator[Finding]:
    """Find contradictions in what each trial says about itself."""
    plan = _plan_of(job.lock)
    if job.lock is not None and plan is None:
        path, version = f"{job.directory}/lock.json", job.lock.schema_version
        known = " or ".join(map(str, _PLAN_SCHEMAS))
        message = f"schema_version is {version}; expected {known} to compare configs with it"
        yield Finding(Kind.NO_PLAN, path, message)
    usual = _usual_names(job.trials)
    for found in job.trials:
        yield from _audit_name(found)
        yield from _audit_config_file(found)
        yield from _audit_agent(found, usual)
        yield from _audit_slot(found, plan or {})
        yield from _audit_times(found)


def _plan_of(lock: LockDocument | None) -> dict[object, list[Settings]] | None:
    """The planned settings for the trials of each task; None if they cannot be compared."""
    if lock is None or lock.schema_version not in _PLAN_SCHEMAS:
        return None
    plan: dict[object, list[Settings]] = {}
    for slot in lock.trials:
        settings = _settings_of(slot)
        # Slots of a task differ only in the agent: one of each kind is enough.
        slots = plan.setdefault(slot.task.identity, [])
        if settings not in slots:
            slots.append(settings)
    return plan


def _settings_of(config: TrialConfigDocument) -> Settings:
    verifier = config.verifier
    return {
        "source": config.task.source,
        "verifier.disable": verifier.disable,
        "verifier.import_path": verifier.import_path,
        **limits_of(config),
    }


def _audit_name(found: FoundTrial) -> Iterator[Finding]:
    name = os.path.basename(found.directory)
    if name != found.trial.name:
        message = f"the directory is {name}, the trial in it is {found.trial.name}"
        yield Finding(Kind.RENAMED_TRIAL, found.directory, message, name, found.trial.name)


class _Result(msgspec.Struct, frozen=True):
    """The part of a trial's result.json that is compared."""

    config: msgspec.Raw = msgspec.Raw(b"null")


_RESULT = msgspec.json.Decoder(_Result)


def _audit_config_file(found: FoundTrial) -> Iterator[Finding]:
    path = f"{found.directory}/config.json"
    result = f"{found.directory}/result.json"
    try:
        config, config_twice = load_with_duplicates(read_inside(found.directory, path))
        data = read_inside(found.directory, result)
        if is_large := has_more_values(data, MOST):
            # Token ids, the bulk of a large result, are skipped instead of decoded.
            data = msgspec.json.encode(_RESULT.decode(data))
        document, twice = load_with_duplicates(data)
        recorded = document.get("config") if isinstance(document, dict) else None
    except FileNotFoundError:
        message = "no config.json: the settings of the trial cannot be checked"
        yield Finding(Kind.NO_PLAN, path, message)
        return
    except OSError as error:
        yield Finding(Kind.TORN_FILE, path, f"{path}: cannot be read: {error.strerror}")
        return
    except (ValueError, RecursionError) as error:
        yield Finding(Kind.TORN_FILE, path, f"{path}: torn or not JSON: {error}")
        return
    yield from report_duplicates(path, config_twice)
    yield from [report_too_many(result)] if is_large else report_duplicates(result, twice)
    yield from _audit_usage(result, document)
    # Since 0.14, config.json leaves out what has its default.
    config, recorded = _find_stated(config), _find_stated(recorded)
    if recorded is not None and config != recorded:
        keys = _differing_keys(config, recorded)
        message = f"config.json differs from the config in result.json: {', '.join(keys)}"
        yield Finding(Kind.EDITED_CONFIG, path, message)


# The tables of a trial's config, and the values that a key of theirs has by default. Any other key
# has none: null, false, or an empty list or table.
_TABLES = ("task", "agent", "user_agent", "environment", "verifier")
_DEFAULTS: dict[str, dict[str, object]] = {
    "": {"timeout_multiplier": 1.0, "trials_dir": "trials"},
    "agent": {"name": "oracle"},
    "environment": {
        "type": "docker",
        "delete": True,
        "cpu_enforcement_policy": "auto",
        "memory_enforcement_policy": "auto",
    },
    "mcp_servers": {"transport": "sse"},
}
# With an import path these have no default.
_INSTEAD_OF_A_CLASS = ("name", "type")


def _find_stated(config: object) -> object:
    """A trial's config without the settings that have harbor's default."""
    if not isinstance(config, dict):
        return config
    tables = {
        name: _leave_out_defaults(value, _DEFAULTS.get(name, {}))
        for name, value in config.items()
        if name in _TABLES and isinstance(value, dict)
    }
    return _leave_out_defaults({**config, **tables}, _DEFAULTS[""])


def _leave_out_defaults(table: dict[str, object], defaults: dict[str, object]) -> dict[str, object]:
    has_class = table.get("import_path") is not None
    return {
        name: _leave_out_in_list(name, value)
        for name, value in table.items()
        if not (
            (value is None or value is False or value == [] or value == {})
            if name not in defaults or (has_class and name in _INSTEAD_OF_A_CLASS)
            else value == defaults[name]
        )
    }


def _leave_out_in_list(name: str, value: object) -> object:
    """The same for tables in a list: artifacts, and MCP servers of an agent."""
    if not isinstance(value, list):
        return value
    defaults = _DEFAULTS.get(name, {})
    return [
        _leave_out_defaults(item, defaults) if isinstance(item, dict) else item for item in value
    ]


def _audit_usage(path: str, document: object) -> Iterator[Finding]:
    """Find impossible tokens and costs, which are in no sum."""
    for name, value in find_odd_usage(document, believable_only=True):
        message = f"{name} is {shown(value)}, which is impossible; it is treated as unknown"
        yield Finding(Kind.ODD_USAGE, path, message, shown(value))


def _differing_keys(left: object, right: object) -> list[str]:
    if not (isinstance(left, dict) and isinstance(right, dict)):
        return ["the documents"]
    return sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))


def _usual_names(trials: Sequence[FoundTrial]) -> dict[Slot, str]:
    """The name under which most trials of each agent are counted."""
    names: dict[Slot, Counter[str]] = {}
    for found in trials:
        slot = agent_slot(found.document.config.agent)
        names.setdefault(slot, Counter())[_counted_as(found)] += 1
    return {slot: counts.most_common(1)[0][0] for slot, counts in names.items()}


def _audit_agent(found: FoundTrial, usual: dict[Slot, str]) -> Iterator[Finding]:
    """Check that a trial is counted under the agent and model that it was configured with.

    An agent given by import path chooses its own name, but it must be the same in all trials.
    """
    config = found.document.config
    path = f"{found.directory}/result.json"
    name, model = config.agent.name, config.agent.model_name
    if name and not config.agent.import_path and name != found.trial.agent:
        message = f"counted under agent {found.trial.agent}; its config asked for {name}"
        yield Finding(Kind.EDITED_CONFIG, path, message, found.trial.agent, name)
    mine, theirs = _counted_as(found), usual[agent_slot(config.agent)]
    if mine != theirs:
        message = f"counted as {mine}; the other trials of the same agent as {theirs}"
        yield Finding(Kind.EDITED_CONFIG, path, message, mine, theirs)
    counted = found.trial.model
    if model and counted and counted not in (model, model.partition("/")[2]):
        message = f"counted under model {counted}; its config asked for {model}"
        yield Finding(Kind.EDITED_CONFIG, path, message, counted, model)


def _counted_as(found: FoundTrial) -> str:
    return f"{found.trial.agent} with {found.trial.model or 'no model'}"


def _audit_slot(found: FoundTrial, plan: dict[object, list[Settings]]) -> Iterator[Finding]:
    """Check that a trial's settings are those of a slot for its task."""
    config = found.document.config
    path = f"{found.directory}/result.json"
    slots = plan.get(config.task.identity, [])
    settings = _settings_of(config)
    if slots and settings not in slots:
        names = [name for name, value in settings.items() if value != slots[0][name]]
        message = f"its config differs from every slot in lock.json: {', '.join(names)}"
        found_values, planned = _show(settings, names), _show(slots[0], names)
        yield Finding(Kind.EDITED_CONFIG, path, message, found_values, planned)
    elif slots and found.trial.source not in {slot["source"] for slot in slots}:
        planned = str(slots[0]["source"])
        message = f"counted under dataset {found.trial.dataset}; lock.json has it from {planned}"
        yield Finding(Kind.EDITED_CONFIG, path, message, found.trial.dataset, planned)


def _show(settings: Settings, names: Sequence[str]) -> str:
    return ", ".join(f"{name}={settings[name]}" for name in names)


def _audit_times(found: FoundTrial) -> Iterator[Finding]:
    path = f"{found.directory}/result.json"
    began, ended = found.document.started_at, found.document.finished_at
    if _reversed(began, ended):
        message = f"the trial ended at {ended}, before it began at {began}"
        yield Finding(Kind.IMPOSSIBLE_TIME, path, message, str(ended), f"after {began}")
        return
    try:
        phases = asdict(_PHASES.load(path))
    except JobError as error:
        yield Finding(Kind.TORN_FILE, path, str(error))
        return
    for name, phase in phases.items():
        times = [began, phase.started_at, phase.finished_at, ended] if phase else []
        if any(starmap(_reversed, pairwise(times))):
            message = (
                f"{name} lasted from {times[1]} to {times[2]}, the trial from {began} to {ended}"
            )
            yield Finding(Kind.IMPOSSIBLE_TIME, path, message, f"{times[1]} to {times[2]}")


def _reversed(earlier: str | None, later: str | None) -> bool:
    if not (earlier and later) or earlier.endswith("Z") != later.endswith("Z"):
        return False
    return moment(later) < moment(earlier)
