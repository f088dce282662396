"""docs/assurance/errata.md: every vector that it names exists, and shows what the page says."""

import base64
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from proctor.harbor.job import OrderBasis, load_job

ROOT = Path(__file__).resolve().parent.parent
PLACES = {"V": "tests/conformance/vectors", "J": "tests/data/harbor/jobs"}
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`((?:[VJ]|tests)/[^`#]+)(?:#([^`]+))?`")

type Shown = Any
"""A vector or a result.json, as it stands in its file."""


@cache
def load_named() -> dict[tuple[int, str], Shown]:
    """Every vector and file that the page names, by its row and its id or name."""
    found: dict[tuple[int, str], Shown] = {}
    for row in ROW.finditer(
        (ROOT / "docs" / "assurance" / "errata.md").read_text(encoding="utf-8")
    ):
        for path, vector in NAMED.findall(row[4]):
            top, _, rest = path.partition("/")
            file = ROOT / PLACES.get(top, top) / rest
            found[int(row[1]), vector or rest] = load_one(file, vector)
    return found


def load_one(file: Path, vector: str) -> Shown:
    if not vector:
        assert file.is_file()
        return file
    lines = load_lines(file)
    if vector.isdecimal():
        return lines[int(vector) - 1]
    (line,) = [line for line in lines if line["id"] == vector]
    return line


@cache
def load_lines(file: Path) -> list[Shown]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def rewards(line: Shown) -> Shown:
    return line["expect"]["ok"]["rewards"]


def first_value(line: Shown) -> Shown:
    ((_, value),) = line["expect"]["ok"]["output"]["dict"]
    return next(iter(value.items()))[1]


def error_of(line: Shown) -> tuple[str, str | None]:
    error = line["expect"]["error"]
    return error["class"], (error.get("cause") or {}).get("class")


def published(file: Path) -> Shown:
    return json.loads(file.read_text(encoding="utf-8"))


def result_in(line: Shown) -> Shown:
    return json.loads(base64.b64decode(line["input"]["result_json_b64"]))


def step_rewards(line: Shown) -> Shown:
    return line["expect"]["ok"]["verifier_result"]


SHOWN: dict[tuple[int, str], Callable[[Shown], bool]] = {
    (1, "metrics-p0239"): lambda line: first_value(line) == "1.0",
    (2, "39"): lambda line: line["input"].startswith("No reward file") and not line["known"],
    (3, "60"): lambda line: "reward" in line["input"] and not line["known"],
    (4, "reward_parse-p0045"): lambda line: rewards(line)["dict"][0][1]["float"] == "1.0",
    (4, "reward_parse-p0067"): lambda line: rewards(line)["dict"][0][1]["float"] == "10.0",
    (4, "reward_parse-p0023"): lambda line: error_of(line)[0] == "ValidationError",
    (5, "reward_parse-p0116"): lambda line: rewards(line) is None,
    (5, "reward_parse-p0054"): lambda line: rewards(line) == {"dict": []},
    (6, "pass_at_k-p0038"): lambda line: line["expect"]["ok"]["float"] == "0.3999999999999999",
    (6, "pass_at_k-p0164"): lambda line: line["expect"]["ok"]["float"] == "0.9166666666666667",
    (7, "metrics-p0198"): lambda line: first_value(line) == "nan",
    (7, "metrics-p0053"): lambda line: first_value(line) == "1.0",
    (7, "metrics-p0010"): lambda line: first_value(line) == "1",
    (7, "metrics-p0216"): lambda line: first_value(line) == "1.0",
    (8, "consumer-p0079"): lambda line: "harbor_result_malformed" in json.dumps(line["expect"]),
    (8, "12-nan-oracle/result.json"): lambda file: '"mean": null' in file.read_text(),
    (9, "01-binary-oracle-k1/result.json"): lambda file: "n_total_trials" in published(file),
    (10, "job_stats-p0011"): lambda line: (
        '"n_completed_trials":1,"n_errored_trials":1' in line["expect"]["ok"]["stats_json"]
    ),
    (10, "consumer-p0048"): lambda line: (
        result_in(line)["stats"]["n_completed_trials"] == 3
        and line["expect"]["ok"]["summary"]["total"] == 6
    ),
    (11, "pass_at_k-p0166"): lambda line: (
        line["input"]["trials"][0]["verifier_result"]["rewards"] is None
        and bool(line["expect"]["ok"]["by_evals"])
    ),
    (12, "31-killed/result.json"): lambda file: (
        load_job(str(file.parent)).ordered.basis is OrderBasis.PUBLISHED
    ),
    (13, "job/test_metrics.py"): lambda file: (
        "def test_a_metric_script_of_a_directory_is_noted_not_run(" in file.read_text()
    ),
    (14, "reward_parse-p0088"): lambda line: (
        error_of(line) == ("VerifierOutputParseError", "UnicodeDecodeError")
    ),
    (14, "reward_parse-p0090"): lambda line: error_of(line)[0] == "RecursionError",
    (14, "reward_parse-p0043"): lambda line: error_of(line)[0] == "IsADirectoryError",
    (15, "multi_step-p0047"): lambda line: (
        step_rewards(line) is None and line["expect"]["ok"]["executed_steps"] == ["s1"]
    ),
    (16, "multi_step-p0036"): lambda line: (
        step_rewards(line)["rewards"]["dict"][0][1]["float"] == "0.5"
    ),
    (17, "multi_step-p0036"): lambda line: line["expect"]["ok"]["reward_key_order"].startswith(
        "unspecified"
    ),
}


def test_the_page_has_17_places_and_names_what_shows_each() -> None:
    named = load_named()
    assert sorted({number for number, _ in named}) == list(range(1, 18))
    assert named.keys() == SHOWN.keys()


@pytest.mark.parametrize("key", SHOWN, ids=lambda key: f"{key[0]}-{key[1]}")
def test_a_vector_shows_what_the_page_says(key: tuple[int, str]) -> None:
    assert SHOWN[key](load_named()[key])
