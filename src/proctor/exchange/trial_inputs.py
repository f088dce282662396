"""Task, agent, environment and inputs of a harbor trial, pinned as far as can be.

Harbor records digests of the task and the versions of itself and of the agent. It records neither
the files of a task nor the image that was built: those need the task directory.
"""

import re
from typing import Final

from proctor.exchange.made import Pins
from proctor.exchange.trial_sources import Sources
from proctor.harbor.spending import NO_MODEL
from proctor.record.model import (
    AgentReference,
    EnvironmentSnapshot,
    FileReference,
    InputRecord,
    TaskReference,
)
from proctor.record.pins import configuration_digest
from proctor.task.config import TaskConfig
from proctor.task.manifest import find_role
from proctor.traces.entry import Object

UNRESOLVED: Final = "unresolved"
"""For what a record must say and harbor does not."""

LONGEST_SAID: Final = 1 << 20
"""Characters of an instruction or a system prompt; what is longer stays in the trace alone, or an
agent could keep its trial from being sealed."""
_NOT_CONFIGURATION: Final = frozenset({"task", "trial_name", "trials_dir", "job_id"})
"""What says where and as what a trial ran, not how."""
_PINNED_IMAGE: Final = re.compile(r"@(sha256:[0-9a-f]{64})$")
_BUILT: Final = "harbor-dockerfile:"
"""Before the name of a file that an image was built from."""
_SETUP_TIMEOUT: Final = 360.0
"""Harbor's limit for setting an agent up, in seconds, where nobody says another."""


def make_task(sources: Sources) -> TaskReference:
    """Which task, and harbor's checksum of it."""
    account, given = sources.account, sources.given
    checksum = account.task_checksum if account else None
    if given is not None:
        checksum = given.digests.task_checksum
    # Two directories with the same files are one task to a digest: the trial says its name.
    name = account.task_name if account else _find_task_name(sources)
    return TaskReference(task_id=name, task_revision=checksum or UNRESOLVED)


def _find_task_name(sources: Sources) -> str:
    told = sources.told.task
    return (told.name or (told.path or "").rstrip("/").rpartition("/")[2]) or UNRESOLVED


def make_agent(sources: Sources) -> AgentReference:
    """Who sat the task: the harness, the model that answered, and how both were set up."""
    account, told = sources.account, sources.told.agent
    version = account.agent_info.version if account else None
    models = find_models_reported(sources)
    requested = find_model_requested(sources)
    return AgentReference(
        adapter=account.agent_info.name if account else told.name or told.import_path or UNRESOLVED,
        model=models[0] if len(models) == 1 else requested or NO_MODEL,
        adapter_revision=version if version and version.strip() not in ("", "unknown") else None,
        configuration=make_configuration(sources),
    )


def find_models_reported(sources: Sources) -> tuple[str, ...]:
    """The models that the trace says have answered."""
    return sources.evidence.trace.models if sources.evidence.trace else ()


def find_model_requested(sources: Sources) -> str | None:
    """The model that the agent was told to use, with its provider."""
    if sources.told.agent.model_name:
        return sources.told.agent.model_name
    model = sources.account.agent_info.model_info if sources.account else None
    if model is None:
        return None
    return f"{model.provider}/{model.name}" if model.provider else model.name


def make_configuration(sources: Sources) -> Object:
    """What was asked for, and with the task at hand the limits that followed from both."""
    asked = {key: told for key, told in sources.config.items() if key not in _NOT_CONFIGURATION}
    if sources.given is None:
        return asked
    return asked | {"limits": _find_limits(sources, sources.given.task.config)}


def _find_limits(sources: Sources, task: TaskConfig) -> Object:
    """Seconds, processors and megabytes that the trial really had; null is no limit."""
    told = sources.told
    agent, verifier, environment = told.agent, told.verifier, told.environment

    def scaled(seconds: float | None, most: float | None, own: float | None) -> float | None:
        if seconds is None:  # then harbor looks at no maximum either
            return None
        multiplier = own if own is not None else told.timeout_multiplier
        return min(seconds, most or seconds) * (1.0 if multiplier is None else multiplier)

    setup = agent.override_setup_timeout_sec

    return {
        "agent_sec": scaled(
            agent.override_timeout_sec or task.agent.timeout_sec,
            agent.max_timeout_sec,
            told.agent_timeout_multiplier,
        ),
        "agent_setup_sec": scaled(
            _SETUP_TIMEOUT if setup is None else setup,
            None,
            told.agent_setup_timeout_multiplier,
        ),
        "verifier_sec": scaled(
            verifier.override_timeout_sec or task.verifier.timeout_sec,
            verifier.max_timeout_sec,
            told.verifier_timeout_multiplier,
        ),
        "environment_build_sec": scaled(
            task.environment.build_timeout_sec, None, told.environment_build_timeout_multiplier
        ),
        "cpus": environment.override_cpus or task.environment.cpus,
        "memory_mb": environment.override_memory_mb or task.environment.memory_mb,
        "storage_mb": environment.override_storage_mb or task.environment.storage_mb,
        "gpus": environment.override_gpus or task.environment.gpus,
    }


def make_environment(sources: Sources) -> EnvironmentSnapshot:
    """Where it ran, with the versions that the job around the trial recorded."""
    told = sources.config.get("environment")
    asked = told if isinstance(told, dict) else {}
    versions: dict[str, str] = {}
    if sources.lock and sources.lock.harbor.version:
        versions["harbor"] = sources.lock.harbor.version
        if sources.lock.harbor.git_commit_hash:
            versions["harbor-commit"] = sources.lock.harbor.git_commit_hash
    return EnvironmentSnapshot(
        runtime_image=_find_image(sources),
        compute_backend=str(asked.get("import_path") or asked.get("type") or "docker"),
        tool_versions=versions or None,
    )


def _find_image(sources: Sources) -> str:
    given = sources.given
    if given is None:
        return UNRESOLVED
    if given.task.config.environment.docker_image:
        return given.task.config.environment.docker_image
    hashes = {file.path: file.sha256 for file in given.files}
    built_from = "environment/Dockerfile"
    digest = hashes.get(built_from)
    return f"{_BUILT}{built_from}@sha256:{digest}" if digest else UNRESOLVED


def make_inputs(sources: Sources) -> InputRecord:
    """What the agent was given; without the task, as much of it as the trace repeats."""
    given = sources.given
    return InputRecord(
        instruction=_find_instruction(sources),
        system_prompt=_find_said(sources, "system"),
        input_files=tuple(
            FileReference(path=file.path, hash=file.sha256, source=find_role(file.path))
            for file in given.files
        )
        if given
        else None,
    )


def _find_instruction(sources: Sources) -> str:
    if sources.given:
        task = sources.given.task
        texts = [step.instruction for step in task.steps] or [task.instruction]
        text = "\n\n".join(texts)
    else:
        text = _find_said(sources, "user") or ""
    return text if text.strip() else UNRESOLVED


def _find_said(sources: Sources, role: str) -> str | None:
    """The first words of the system or the user in the trace."""
    trace = sources.evidence.trace
    if trace is None:
        return None
    said = [entry.content for entry in trace.entries if entry.role == role]
    said += [turn.text for turn in trace.turns if turn.role == role]
    first = next((text for text in said if text and text.strip()), None)
    return first if first is not None and len(first) <= LONGEST_SAID else None


def make_pins(sources: Sources, configuration: Object) -> Pins:
    """The digests behind the record, without those of the trace."""
    given, account = sources.given, sources.account
    image = _PINNED_IMAGE.search(_find_image(sources))
    recorded = account.task_checksum if account else None
    return Pins(
        task_checksum=given.digests.task_checksum if given else recorded,
        task_lock_digest=given.digests.lock_digest if given else sources.locked_digest,
        task_dataset_digest=given.digests.dataset_v1 if given else None,
        is_task_recomputed=given is not None,
        configuration_sha256=configuration_digest(configuration),
        image_digest=image[1] if image and not image.string.startswith(_BUILT) else None,
        model_requested=find_model_requested(sources),
        models_reported=find_models_reported(sources),
    )
