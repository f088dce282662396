"""Metrics on an interpreter whose builtin `sum` is not that of 3.12: harbor's bits all the same."""

import pytest

from proctor.reward import number
from tests.conformance import ours
from tests.conformance.facts import difference
from tests.conformance.vectors import Line, line_params


@pytest.mark.parametrize("line", line_params("metrics"))
def test_metrics_by_the_portable_sum_have_the_bits_stored_from_3_12(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(number, "_BUILTIN_IS_EXACT", False)
    assert difference(line["expect"], ours.run_metric(line["input"])) is None
