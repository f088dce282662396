"""Match trials that proctor did not name to slots, by their configuration.

harbor's trials have no key. One of them fills a slot if its config.json equals the slot's, except
for names and secrets, and its task had the same content. Tasks that were moved are matched by
content alone; a killed trial has no digest of its content, so its path must be the slot's. Runs in
linear time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.errors import JobError
from proctor.files import read_small
from proctor.harbor.configs import TrialConfig
from proctor.harbor.documents import TRIAL
from proctor.harbor.env import is_sensitive

type _Table = dict[str, Any]

_NAMES = ("trial_name", "trials_dir", "job_id")
_PLACES = ("path", "download_dir", "overwrite")


class ForeignTrial(msgspec.Struct, frozen=True):
    """A trial directory that is not in proctor.json."""

    name: str
    config: _Table
    """Its configuration, without names."""
    checksum: str | None
    """Checksum of its task; None if it was killed."""


class ExpectedConfig(msgspec.Struct, frozen=True):
    """Configuration that the trial of a slot would have."""

    config: _Table
    checksum: str


def load_foreign(directory: str, name: str) -> ForeignTrial | None:
    """Load the trial in a directory; None if it is not one."""
    try:
        config = msgspec.json.decode(read_small(f"{directory}/{name}/config.json"), type=_Table)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(config.get("task"), dict) or config.get("trial_name") != name:
        return None
    try:
        checksum = TRIAL.load(f"{directory}/{name}/result.json").task_checksum
    except JobError:
        checksum = None
    return ForeignTrial(name, _without_names(config), checksum)


def expected_config(config: TrialConfig, checksum: str) -> ExpectedConfig:
    """Return the configuration that the trial of a slot would have, in comparable form."""
    return ExpectedConfig(_without_names(config.model_dump(mode="json")), checksum)


def match_foreign(
    wanted: Sequence[ExpectedConfig], found: Iterable[ForeignTrial]
) -> dict[int, str]:
    """Return the names of the trials that match `wanted`, by index; the first of equal ones."""
    matched: dict[int, str] = {}
    left = list(found)
    # From the strictest match to the loosest, so that a loose match does not take another trial's
    # slot.
    for key_of_wanted, key_of_found in (
        (_key(with_place=True, with_content=True), _key(with_place=True, with_content=True)),
        (_key(with_place=False, with_content=True), _key(with_place=False, with_content=True)),
        (_key(with_place=True, with_content=False), _key_if_killed),
    ):
        waiting: dict[str, deque[int]] = {}
        for place, one in enumerate(wanted):
            if place not in matched:
                waiting.setdefault(key_of_wanted(one) or "", deque()).append(place)
        rest = []
        for trial in left:
            places = waiting.get(key_of_found(trial) or "?")
            if places:
                matched[places.popleft()] = trial.name
            else:
                rest.append(trial)
        left = rest
    return matched


def _key(
    *, with_place: bool, with_content: bool
) -> Callable[[ExpectedConfig | ForeignTrial], str | None]:
    def key_of(one: ExpectedConfig | ForeignTrial) -> str | None:
        if with_content and one.checksum is None:
            return None
        config = one.config if with_place else _without_place(one.config)
        content = one.checksum if with_content else ""
        return f"{_text(config)} {content}"

    return key_of


def _key_if_killed(trial: ExpectedConfig | ForeignTrial) -> str | None:
    if trial.checksum is not None:
        return None
    return _key(with_place=True, with_content=False)(trial)


def _text(config: Mapping[str, object]) -> str:
    return msgspec.json.encode(config, order="deterministic").decode()


def _without_names(config: _Table) -> _Table:
    settings = {name: value for name, value in config.items() if name not in _NAMES}
    for name in ("agent", "environment", "verifier"):
        part = settings.get(name)
        if isinstance(part, dict) and isinstance(part.get("env"), dict):
            settings[name] = {**part, "env": _without_secrets(part["env"])}
    return settings


def _without_secrets(env: _Table) -> _Table:
    return {name: "" if is_sensitive(name) else value for name, value in env.items()}


def _without_place(config: _Table) -> _Table:
    task = {name: value for name, value in config["task"].items() if name not in _PLACES}
    return {**config, "task": task}
