"""Records to test with: files of every generation, edits of them, and arbitrary ones."""

import copy
import json
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from proctor.record.model import TrialRecord
from proctor.record.read import parse_record

DATA = Path(__file__).resolve().parent.parent / "data" / "records"
DRAWING = b'{"walls": 4}\n'
"""The input file of the records in DATA."""

type Json = dict[str, Any]


def read_data(name: str) -> bytes:
    return (DATA / name).read_bytes()


def complete() -> TrialRecord:
    return parse_record(read_data("g1-complete.json"), "g1-complete.json").record


def tree(name: str = "g1-complete.json", /, **changes: object) -> Json:
    """A record as JSON, changed at dotted places such as "cost.tokens_in"."""
    document: Json = json.loads(read_data(name))
    for path, value in changes.items():
        *parents, last = path.split(".")
        at = document
        for part in parents:
            at = at[part]
        at[last] = copy.deepcopy(value)
    return document


def without(path: str, name: str = "g1-complete.json") -> Json:
    """A record as JSON that lacks one key."""
    document = tree(name)
    *parents, last = path.split(".")
    at = document
    for part in parents:
        at = at[part]
    del at[last]
    return document


def spelled(document: object) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False).encode()


def made(name: str = "g1-complete.json", /, **changes: object) -> TrialRecord:
    """A changed record, whatever its rules say of it."""
    return parse_record(spelled(tree(name, **changes)), "changed", salvage=True).record


# Arbitrary records

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = texts.filter(lambda text: bool(text.strip()))
finite = st.floats(allow_nan=False, allow_infinity=False)
amounts = st.floats(min_value=0, allow_infinity=False)
counts = st.integers(min_value=0, max_value=2**70)
offsets = st.integers(-23 * 60, 23 * 60).map(lambda m: timezone(timedelta(minutes=m)))
times = st.datetimes(timezones=st.none() | offsets | st.just(UTC)).map(
    lambda time: time.isoformat()
)
scalars = st.none() | st.booleans() | st.integers() | finite | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
objects = st.dictionaries(texts, values, max_size=3)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


files = st.fixed_dictionaries({"path": names, "hash": names, "source": maybe(texts)})
validity = st.fixed_dictionaries(
    {
        "output_parseable": st.just(True),
        "schema_valid": st.booleans(),
        "verifier_completed": st.booleans(),
        "errors": st.lists(texts, max_size=2),
    }
)
confidence = st.fixed_dictionaries(
    {
        "annotator_count": maybe(counts),
        "inter_rater_agreement": maybe(st.floats(0, 1)),
        "confidence_interval": maybe(st.tuples(finite, finite).map(sorted)),
        "confidence_method": maybe(names),
    }
)
annotation = st.fixed_dictionaries(
    {
        "reviewer_id": names,
        "timestamp": times,
        "judgment": st.sampled_from(["pass", "fail", "defer"]),
        "categories": st.lists(texts, max_size=2),
        "notes": maybe(texts),
    }
)
tag = st.fixed_dictionaries({"category": names, "source": st.just("judge")})
agent_output = st.fixed_dictionaries(
    {"status": st.just("failed"), "output_path": names, "output_format": names}
)
evaluations = st.fixed_dictionaries(
    {
        "reward": st.floats(0, 1),
        "validity": validity,
        "breakdown": maybe(objects),
        "error_taxonomy": maybe(st.lists(tag, max_size=2)),
        "confidence": maybe(confidence),
        "annotations": maybe(st.lists(annotation, max_size=2)),
    }
)
costs = st.fixed_dictionaries({"tokens_in": maybe(counts), "estimated_cost_usd": maybe(amounts)})
lineage: dict[str, Any] = {
    "family_id": "f",
    "seed_task_id": "s",
    "variation_key": "a=1",
    "variation": {"a": "1", "b": "2"},
    "derivation_lineage": [{"axis": "a", "value": "1", "parent_value": "0"}],
}

documents = st.fixed_dictionaries(
    {
        "trial_id": names,
        "experiment_id": names,
        "dataset_id": maybe(texts),
        "timestamp": times,
        "task": st.fixed_dictionaries({"task_id": names, "task_revision": names}),
        "agent": st.fixed_dictionaries(
            {"adapter": names, "model": names, "configuration": objects}
        ),
        "environment": st.fixed_dictionaries(
            {
                "runtime_image": names,
                "compute_backend": names,
                "tool_versions": maybe(st.dictionaries(texts, texts, max_size=3)),
            }
        ),
        "inputs": st.fixed_dictionaries(
            {"instruction": names, "input_files": maybe(st.lists(files, max_size=2))}
        ),
        "outputs": st.fixed_dictionaries(
            {"agent_output": maybe(agent_output), "agent_result": maybe(objects)}
        ),
        "evaluation": evaluations,
        "timing": st.fixed_dictionaries(
            {"total_seconds": amounts, "agent_seconds": maybe(amounts)}
        ),
        "cost": maybe(costs),
        "adaptation": maybe(st.just(lineage)),
        "completeness": st.just("partial"),
    }
)
"""Records of the first generation as JSON, such as aec-bench would take."""
