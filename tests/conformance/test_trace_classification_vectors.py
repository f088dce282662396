"""aec-bench's turns and counts of labels, as far as ours are the same (docs/assurance/errata.md).

Its batches, its model's answers, its confidence and its structure scores have no counterpart here.
"""

import contextlib
import json
from pathlib import Path

import msgspec
import pytest

from proctor.cli.trace.labels import LabelledTrial, Part, describe_all, describe_trial
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.label_rules import classify
from proctor.traces.labels import Label
from proctor.traces.trace import TraceReading
from proctor.traces.traced_trial import TracedTrial
from tests.conformance.test_summary_vectors import ERRATA
from tests.conformance.vectors import Line, line_params

NO_COUNTERPART = ("classify", "confidence", "parse", "structural")
"""Kinds of vectors that docs/assurance/errata.md names."""


def check_turns(vector: Line, place: Path) -> None:
    """A turn of ours is an assistant's turn of aec-bench's."""
    rows = vector["trajectory"]
    if rows is not None:
        entries = [msgspec.convert(row, Entry) for row in rows if "format" not in row]
    else:
        path = place / "conversation.jsonl"
        rows = vector["inputs"].get("conversation", ())
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        entries = list(TraceReading(str(path), TraceKind.CONVERSATION).entries())
    # A header is no entry; its reader of the first generation knew that too.
    output = vector.get("output_docs_era") or vector["output"]
    expected = [turn for turn in output.get("turns", ()) if turn["role"] == "assistant"]
    assert len(classify(entries)) == len(expected)


def check_counts(vector: Line) -> None:
    inputs, expected = vector["inputs"], vector["output"]
    trials = []
    for record in inputs["records"]:
        labels = tuple(
            Label(step, label, "", sure)
            for step, (label, sure) in enumerate(inputs["labels"][record["trial_id"]], 1)
        )
        trial = TracedTrial(name=record["trial_id"], files=(), open_file=contextlib.nullcontext)
        trials.append(describe_trial(LabelledTrial(trial, (Part("", labels, {}),), ())))
    whole = describe_all(trials)
    shares = whole.shares or dict.fromkeys(expected["bond_distribution"], 0.0)
    assert shares == pytest.approx(expected["bond_distribution"], abs=1e-6)
    dominant = {label: count for label, count in whole.dominant.items() if count}
    assert dominant == expected["dominant_bond_counts"]
    for found, told in zip(trials, expected["trials"], strict=True):
        assert (found.turns, found.counts) == (told["classified_turns"], told["bond_counts"])
        assert found.dominant == told["dominant_bond"]


@pytest.mark.parametrize("vector", line_params("trace_classification"))
def test_turns_and_counts_of_labels_are_aec_benchs(vector: Line, tmp_path: Path) -> None:
    if vector["kind"] == "load":
        check_turns(vector, tmp_path)
    elif vector["kind"] == "experiment":
        check_counts(vector)
    else:
        assert vector["kind"] in NO_COUNTERPART


@pytest.mark.parametrize("kind", NO_COUNTERPART)
def test_the_page_of_errata_names_every_kind_without_a_counterpart(kind: str) -> None:
    assert f"kind `{kind}`" in ERRATA.read_text(encoding="utf-8")
