"""The schema says what the reader does, as far as a schema can."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings

from proctor.record.read import parse_record, render_record
from proctor.record.schema import render_schema
from tests.examples import examples
from tests.record.samples import Json, documents, made, read_data, spelled, tree, without

SCHEMA: Json = json.loads(render_schema())


def objects(schema: object) -> list[Json]:
    """Every object of the format in a schema, with its properties."""
    if isinstance(schema, list):
        return [each for part in schema for each in objects(part)]
    if not isinstance(schema, dict):
        return []
    return [schema] * ("properties" in schema) + objects(list(schema.values()))


@pytest.fixture(scope="module")
def validator() -> Any:
    """A library that is not ours; it comes with harbor."""
    kind: Any = pytest.importorskip("jsonschema").validators.validator_for(SCHEMA)
    kind.check_schema(SCHEMA)
    return kind(SCHEMA)


def test_it_names_its_dialect_and_no_host_of_ours() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["$id"].startswith("urn:")
    assert set(re.findall(r"https?://[^/]+", json.dumps(SCHEMA))) == {"https://json-schema.org"}


def test_every_object_is_closed_and_every_field_is_explained() -> None:
    found = objects(SCHEMA)
    assert len(found) == 17
    for each in found:
        assert each["additionalProperties"] is False
        assert all(field.get("description") for field in each["properties"].values())


def test_the_keys_are_those_that_are_written() -> None:
    assert list(SCHEMA["properties"]) == list(tree())


@pytest.mark.parametrize("name", ["g1-complete.json", "g1-partial.json"])
def test_records_fit(validator: Any, name: str) -> None:
    validator.validate(json.loads(read_data(name)))
    validator.validate(json.loads(render_record(made(name, **{"evaluation.reward": None}))))


@settings(max_examples=examples(20))
@given(document=documents)
def test_whatever_is_read_fits_before_and_after(validator: Any, document: Json) -> None:
    validator.validate(document)
    record = parse_record(spelled(document), "x", salvage=True).record
    validator.validate(json.loads(render_record(record)))


@pytest.mark.parametrize(
    "document",
    [
        tree(colour=1),
        tree(trial_id=" "),
        tree(**{"cost.tokens_in": -1}),
        tree(**{"evaluation.reward": "1"}),
        tree(completeness="done"),
        tree(**{"agent.configuration": None}),
        tree("g1x.json"),
        without("evaluation.reward"),
        without("task.task_revision"),
    ],
)
def test_what_is_refused_does_not_fit(validator: Any, document: Json) -> None:
    assert not validator.is_valid(document)
