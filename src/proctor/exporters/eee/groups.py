"""Which trials make one aggregate: one experiment, dataset, agent and model. And the aggregate."""

import re
from dataclasses import dataclass, field

import msgspec

from proctor import __version__
from proctor.digest import sha256_hex
from proctor.exporters.eee.rows import VERSION
from proctor.exporters.trials import SealedTrial
from proctor.record.ids import make_id
from proctor.reward.metric import mean
from proctor.trajectory.entry import Object

_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\..*)?|data|.*\.")
"""What no component of a path may be called, on any system or in this store."""
_UNKNOWN = "unknown"
_OURS = "proctor"


class Key(msgspec.Struct, frozen=True):
    """What the trials of one aggregate share."""

    experiment: str
    dataset: str | None
    agent: str
    agent_version: str | None
    model: str
    library: str
    """What ran them."""
    library_version: str
    profile: str | None
    """The scoring rules."""


class Source(msgspec.Struct, frozen=True):
    """The ledger that the trials come from."""

    origin: str
    root: str
    """The root hash of its tree, as hex."""
    size: int
    taken: str
    """When the newest of the chosen trials was sealed, in seconds since 1970."""


@dataclass(slots=True)
class Group:
    """The trials of one aggregate, as far as they were read."""

    key: Key
    source: Source
    rewards: list[float] = field(default_factory=list)
    not_scored: int = 0
    latest: str = ""
    """When the newest of them ran."""

    @property
    def uuid(self) -> str:
        """The same for the same trials of the same ledger; of the fourth kind, as is demanded."""
        digest = sha256_hex(msgspec.json.encode((self.key, self.source.root)))
        parts = (digest[:8], digest[8:12], f"4{digest[13:16]}", f"8{digest[17:20]}", digest[20:32])
        return "-".join(parts)

    @property
    def folder(self) -> str:
        """Where it stands in the store."""
        developer, slash, model = self.key.model.partition("/")
        if not slash:
            developer, model = _UNKNOWN, developer
        parts = (self.key.experiment, developer, model.replace("/", "_"))
        return "/".join(["data", *map(_component, parts)])

    @property
    def evaluation_id(self) -> str:
        """The name of the aggregate, which its rows repeat."""
        eval_name = f"{self.key.experiment}-{self.uuid[:8]}"
        return f"{eval_name}/{self.key.model}/{self.source.taken}"

    @property
    def links(self) -> Object:
        """What ties a row to the aggregate."""
        return {
            "evaluation_id": self.evaluation_id,
            "model_id": self.key.model,
            "evaluation_name": self.key.dataset or self.key.experiment,
            "evaluation_result_id": f"{self.uuid}/reward",
        }


def key_of(trial: SealedTrial) -> Key:
    """Which aggregate a trial belongs to."""
    record, entry = trial.record, trial.entry
    library = entry.source.kind if entry.source else _OURS
    versions = record.environment.tool_versions or {}
    return Key(
        experiment=record.experiment_id,
        dataset=record.dataset_id,
        agent=record.agent.adapter,
        agent_version=record.agent.adapter_revision,
        model=record.agent.model,
        library=library,
        library_version=versions.get(library, _UNKNOWN),
        profile=entry.score.profile if entry.score else None,
    )


def make_aggregate(group: Group, checksum: str) -> Object:
    """The aggregate of a group of which at least one trial has a score."""
    key, source, links = group.key, group.source, group.links
    return {
        "schema_version": VERSION,
        "evaluation_id": group.evaluation_id,
        "evaluation_timestamp": group.latest,
        "retrieved_timestamp": source.taken,
        "source_metadata": {
            "source_name": source.origin,
            "source_type": "evaluation_run",
            "source_organization_name": source.origin,
            "evaluator_relationship": "other",
            "additional_details": {
                "ledger_root": source.root,
                "ledger_size": str(source.size),
                "exported_by": f"{_OURS} {__version__}",
            },
        },
        "eval_library": {
            "name": key.library,
            "version": key.library_version,
            "additional_details": {"scoring_profile": key.profile or _UNKNOWN},
        },
        "model_info": _model_info(key),
        "evaluation_results": [
            {
                "evaluation_result_id": links["evaluation_result_id"],
                "evaluation_name": links["evaluation_name"],
                "source_data": {"dataset_name": key.dataset or _UNKNOWN, "source_type": "other"},
                "evaluation_timestamp": group.latest,
                "metric_config": _METRIC,
                "score_details": _score_details(group),
            }
        ],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": f"{group.folder}/{group.uuid}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": checksum,
            "total_rows": len(group.rewards),
        },
    }


_METRIC: Object = {
    "evaluation_description": "The mean reward of all trials that have a score.",
    "metric_id": "proctor.mean_reward",
    "metric_name": "mean reward",
    "metric_kind": "mean_reward",
    "metric_unit": "points",
    "lower_is_better": False,
    "score_type": "continuous",
    "min_score": "-Infinity",
    "max_score": "Infinity",
}


def _score_details(group: Group) -> Object:
    return {
        "score": mean(group.rewards),
        "details": {
            "trials": str(len(group.rewards) + group.not_scored),
            "scored": str(len(group.rewards)),
            "not_scored": str(group.not_scored),
            "rests_on": "the trials that have a score; one without a score is not counted as 0",
        },
    }


def _model_info(key: Key) -> Object:
    developer, slash, _ = key.model.partition("/")
    info: Object = {
        "name": key.model,
        "id": key.model,
        "additional_details": {
            "deployment_type": _UNKNOWN,
            "model_availability": _UNKNOWN,
            "agent": key.agent,
            "agent_version": key.agent_version or _UNKNOWN,
        },
    }
    return {**info, "developer": developer} if slash and developer else info


def _component(text: str) -> str:
    """A name as part of a path that every system takes."""
    name = make_id(text.replace(":", "_"))
    if _RESERVED.fullmatch(name):
        return f"{name.rstrip('.')}-{sha256_hex(name.encode())[:12]}"
    return name
