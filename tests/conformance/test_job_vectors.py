"""Every golden vector of job stats, replayed: counters, evals and whole files, to the byte."""

import pytest

from tests.conformance.facts import difference
from tests.conformance.vectors import Line, line_params
from tests.harbor.job_cases import FIXED, assemble_job


@pytest.mark.parametrize("line", line_params("job_stats"))
def test_trials_give_the_stats_that_harbor_assembles(line: Line) -> None:
    fixed = line["expect"].get("ok", {}).get("fixed", FIXED)
    assert difference(line["expect"], assemble_job(line["input"], fixed)) is None
