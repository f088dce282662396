"""`proctor import prime` from files that were saved before."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Proctor
from tests.exchange.prime.samples import EVALUATION, make_a, make_b, small
from tests.exchange.prime.server import KEY, serving

PAGE = {"samples": [small(1)]}


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., list[str]]:
    """The options for an evaluation's file and files of samples."""

    def make(evaluation: Any, *samples: Any) -> list[str]:
        options = []
        for index, (option, value) in enumerate(
            [("--evaluation-json", evaluation), *(("--samples-json", each) for each in samples)]
        ):
            path = tmp_path / f"{index}.json"
            path.write_text(value if isinstance(value, str) else json.dumps(value))
            options += [option, str(path)]
        return options

    return make


def test_saved_files_give_what_the_interface_gives(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch, saved: Callable[..., list[str]]
) -> None:
    with serving([make_a("a"), make_b("b")], **EVALUATION) as server:
        monkeypatch.setenv("PRIME_API_KEY", KEY)
        monkeypatch.setenv("PRIME_API_BASE_URL", server.url)
        proctor("import", "prime", "ev1", "-e", "nightly")
    pages = [{"samples": [make_a("a")], "total": 2}, {"samples": [make_b("b")], "total": 2}]
    ran = proctor("import", "prime", "-e", "nightly", *saved(EVALUATION, *pages))
    assert (ran.code, ran.err) == (0, "")
    assert "2 samples found: 0 imported, 2 already there, 0 refused" in ran.out


def test_a_sample_that_stands_in_a_file_twice_comes_in_once(
    proctor: Proctor, saved: Callable[..., list[str]]
) -> None:
    ran = proctor(
        "import",
        "prime",
        *saved(EVALUATION, {"samples": [small(1), small(2), small(1)], "total": 2}),
    )
    assert ran.code == 0
    assert "2 samples found: 2 imported, 0 already there, 0 refused" in ran.out


def test_an_answer_that_is_called_result_json_makes_no_trial_of_harbors(
    proctor: Proctor, saved: Callable[..., list[str]], tmp_path: Path
) -> None:
    called = {"name": "submit_answer", "arguments": {"path": "result.json", "content": "{}"}}
    said = [{"role": "assistant", "content": "", "tool_calls": [{"function": called}]}]
    assert (
        proctor(
            "import", "prime", *saved(EVALUATION, {"samples": [small(1, completion=said)]})
        ).code
        == 0
    )
    ran = proctor("export", "--format", "harbor", "-o", tmp_path / "out")
    assert (ran.code, "not a harbor trial" in ran.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_one_page_of_many_is_said_to_be_one(
    proctor: Proctor, saved: Callable[..., list[str]]
) -> None:
    ran = proctor("import", "prime", *saved(EVALUATION, {"samples": [small(1)], "total": 3000}))
    assert ran.code == 3
    assert "note: Prime says there are 3,000 samples and gave 1" in ran.out


@pytest.mark.parametrize(
    ("evaluation", "samples", "said"),
    [
        ([], PAGE, "0.json: Expected `object`, got `array`"),
        ({}, PAGE, "0.json: evaluation None; expected an evaluation_id"),
        ("{", PAGE, "0.json: not JSON"),
        (EVALUATION, "", "1.json: not JSON"),
        (EVALUATION, {"x": 1}, "1.json: Object missing required field `samples`"),
        (EVALUATION, [small(1)], "1.json: Expected `object`, got `array`"),
        (EVALUATION, {"samples": []}, "evaluation ev1 has no samples"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    proctor: Proctor,
    saved: Callable[..., list[str]],
    evaluation: Any,
    samples: Any,
    said: str,
) -> None:
    ran = proctor("import", "prime", *saved(evaluation, samples))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert not Path(os.environ["PROCTOR_LEDGER"]).exists()


def test_options_that_do_not_go_together_are_refused(
    proctor: Proctor, saved: Callable[..., list[str]]
) -> None:
    options = saved(EVALUATION, [small(1)])
    for given, said in (
        ([], "no evaluation given"),
        (options[:2], "--evaluation-json and --samples-json must be given together"),
        (["ev1", *options[2:]], "--evaluation-json and --samples-json must be given together"),
        (["other", *options], "evaluation 'ev1'; EVAL_ID is 'other'"),
        (["ev1", "--evaluation-json", "x", "--samples-json", "x"], "x: cannot be read: No such"),
    ):
        ran = proctor("import", "prime", *given)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err
