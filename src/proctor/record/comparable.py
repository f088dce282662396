"""The parts of a record that decide whether two numbers may be compared.

    settings_digest   the agent's own settings: equal for runs of one agent with equal settings
    RunConditions     what applied to the whole run beyond what its tasks say, and where it ran
    TaskConditions    one task: its revision, its image, its limits

Harbor's settings are distinguished by name; settings in any other shape all count as the agent's.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from proctor.digest import is_digest, sha256_hex

type Settings = Mapping[str, Any]

UNKNOWN: Final = "unknown"
_SHOWN_DIGITS: Final = 12
_MULTIPLIERS: Final = (
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
)
_OVERRIDES: Final = {
    "agent": ("override_timeout_sec", "override_setup_timeout_sec", "max_timeout_sec"),
    "verifier": ("override_timeout_sec", "max_timeout_sec", "disable"),
    "environment": (
        "override_cpus",
        "override_memory_mb",
        "override_storage_mb",
        "override_gpus",
        "override_tpu",
    ),
}
_RUN_SETTINGS: Final = frozenset({*_MULTIPLIERS, *_OVERRIDES, "limits", "artifacts"})
_LIMITS: Final = "limits"
# Prefix of the path and digest of the Dockerfile, where harbor built the image itself.
_BUILT_FROM: Final = "harbor-dockerfile:"
_OWN_ENVIRONMENT: Final = re.compile(r"proctor\.environments\.(\w+)[.:]")
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class RunConditions(msgspec.Struct, frozen=True, kw_only=True):
    """What applied to a run beyond what its tasks say. Runs under different ones are not mixed."""

    backend: str
    """Environment type, such as docker or sandbox."""
    profile: str | None = None
    """Name of the scoring rules; null: not scored by proctor."""
    changed: dict[str, float | bool | str] = {}
    """Multipliers and overrides that are not the default, by their names in harbor's settings."""

    @property
    def has_default_limits(self) -> bool:
        """Whether no multiplier and no override was set."""
        return not self.changed


class TaskConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task when the trial ran."""

    revision: str
    """Its checksum or revision, or `unknown`."""
    image: str
    """Image or root file system; a digest pins it, a tag or a path does not."""
    limits: dict[str, float | None] = {}
    """Limits in effect, in seconds and resource units; empty if not recorded."""
    verifier: str | None = None
    """Digest over the verifier's own files; null: not recorded."""

    @property
    def has_pinned_image(self) -> bool:
        """Whether the image is named by its content. The Dockerfile's digest does not pin it."""
        if self.image.startswith(_BUILT_FROM):
            return False
        return "@sha256:" in self.image or self.image.startswith("sha256:")


def settings_digest(adapter_revision: str | None, settings: Settings) -> str:
    """Digest of the agent's own settings, without limits and paths: 12 hex digits."""
    agent = settings.get("agent")
    if isinstance(agent, Mapping):
        own = {key: value for key, value in agent.items() if key not in _OVERRIDES["agent"]}
        further = {"instructions": settings.get("extra_instruction_paths") or []}
    else:
        own = {key: value for key, value in settings.items() if key not in _RUN_SETTINGS}
        further = {}
    document = {"revision": adapter_revision, "agent": own, **further}
    return sha256_hex(_ENCODER.encode(document))[:_SHOWN_DIGITS]


def find_requested_model(settings: Settings) -> str | None:
    """The requested model; the one that answered may have another name."""
    agent = settings.get("agent")
    found = agent.get("model_name") if isinstance(agent, Mapping) else None
    return found if isinstance(found, str) else None


def render_model(model: str, settings: Settings) -> str:
    """The model of a record, with the requested one if its name differs."""
    requested = find_requested_model(settings)
    if requested is None or model in (requested, requested.partition("/")[2]):
        return model
    return f"{model} (requested: {requested})"


def find_run_conditions(settings: Settings, backend: str, profile: str | None) -> RunConditions:
    """Derive the conditions of a run from the settings of one of its trials."""
    changed: dict[str, float | bool | str] = {}
    for name in _MULTIPLIERS:
        value = settings.get(name)
        # The default of every multiplier is 1, so recording it changes nothing.
        if value is not None and value != 1:
            changed[name] = _plain(value)
    for part, names in _OVERRIDES.items():
        given = settings.get(part)
        if not isinstance(given, Mapping):
            continue
        for name in names:
            if (value := given.get(name)) is not None and value is not False:
                changed[f"{part}.{name}"] = _plain(value)
    # If the environment could not start, the record has its import path instead of its name.
    own = _OWN_ENVIRONMENT.match(backend)
    name = own[1] if own else backend
    return RunConditions(backend=name, profile=profile, changed=changed)


def find_task_conditions(
    settings: Settings, revision: str, image: str, verifier: str | None = None
) -> TaskConditions:
    """Derive the conditions of one task."""
    given = settings.get(_LIMITS)
    limits = {}
    if isinstance(given, Mapping):
        limits = {key: value for key, value in given.items() if _is_number_or_none(value)}
    return TaskConditions(revision=revision, image=image, limits=limits, verifier=verifier)


def verifier_digest(files: Iterable[tuple[str, str]]) -> str | None:
    """Digest of the files that scored a trial, given as (path, SHA-256): 12 hex digits.

    None if there are no files, or if a digest is not a SHA-256: the verifier is then unknown.
    """
    listed = sorted(files)
    if not listed or not all(is_digest(digest) for _, digest in listed):
        return None
    return sha256_hex(_ENCODER.encode(listed))[:_SHOWN_DIGITS]


def _is_number_or_none(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _plain(value: object) -> float | bool | str:
    return value if isinstance(value, bool | int | float | str) else str(value)
