"""Whatever stands in a sample, it comes in as a trial that can be sealed, or is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.exchange.prime.trial import submit_sample
from proctor.ledger.keeping import check_evidence_path
from proctor.ledger.sealing import check_submission
from tests.examples import examples
from tests.exchange.prime.samples import CALL, evaluation, make_a, make_b, submit

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "../../x", "prime_sample.json", '{"a": 1}', "[1]", "\x1b[2J"])
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = sorted({*make_b(), *make_a(), *json.loads(make_a()["info"])})
SAMPLES = st.builds(
    lambda base, changes, info: {**base, **changes, **({"info": info} if info else {})},
    st.sampled_from([make_a(), make_b(), {}]),
    st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=4),
    st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=3),
)
NAMES = st.text(min_size=1, max_size=12) | st.sampled_from(["../x", "\ud800", "a" * 400])


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(SAMPLES | ANYTHING, NAMES)
def test_any_json_is_refused_with_a_sentence_or_can_be_sealed(sample: Any, name: str) -> None:
    try:
        trial = submit_sample(evaluation(), "nightly", name, sample)
        check_submission(trial)
    except InputError:
        return
    for path in trial.attached:
        check_evidence_path(path, "here")
    assert json.loads(trial.attached["prime_sample.json"]) == sample
    for line in trial.attached["conversation.jsonl"].splitlines():
        assert isinstance(json.loads(line), dict)


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "prime_sample.json/x", "~/x", "."])
def test_no_path_of_an_agent_leads_out_of_a_tree(path: str, tmp_path: Path) -> None:
    function = {"name": "submit_answer", "arguments": {"content": "x", "path": path}}
    rows = [{"role": "assistant", "tool_calls": [{**CALL, "function": function}]}]
    for name in submit(make_b(completion=rows)).attached:
        assert (tmp_path / name).resolve().is_relative_to(tmp_path)
        assert not name.startswith("prime_sample.json/")


def test_a_sample_that_is_nested_without_end_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputError, match="nested too deeply"):
        submit(make_b(metrics={"x": deep}))
