"""`proctor compare`: jobs, experiments of a ledger, and rollouts that were brought in."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Proctor
from tests.exchange.prime.samples import EVALUATION, make_b
from tests.task.trees import JOBS

ORACLE, SCRIPTED = JOBS / "03-binary-oracle-k5", JOBS / "04-binary-scripted-k5"
MIXED = JOBS / "42-config-multi"


def test_two_jobs_are_compared_task_by_task(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = proctor("compare", ORACLE, SCRIPTED)
    assert (ran.code, ran.err) == (0, "")
    assert "A - B    +0.067, 95% interval [-0.6, 0.4], over 3 tasks" in ran.out
    assert "tasks    A better at 2, alike at 0, B better at 1" in ran.out
    assert "oracle-wrong  ○○○○○       0  ●○●●○     0.6   -0.6" in ran.out
    assert max(map(len, ran.out.split("See for yourself")[0].split("\n"))) <= 80


def test_few_tasks_are_no_verdict(proctor: Proctor) -> None:
    ran = proctor("compare", ORACLE, SCRIPTED, "--no-behaviour")
    said = "Not enough tasks for a conclusion: 3, and at least 6 are needed."
    assert said in " ".join(ran.out.split())
    assert "scores higher" not in ran.out
    assert "No difference is shown" not in ran.out


def test_every_command_it_prints_shows_the_trial_that_scored_less(proctor: Proctor) -> None:
    ran = proctor("compare", ORACLE, SCRIPTED, "--no-behaviour")
    commands = [line.split()[1:] for line in ran.out.split("\n") if "proctor show" in line]
    assert len(commands) == 3
    for each in commands:
        assert proctor(*each, "--no-pager").code == 0


def test_json_has_it_all(proctor: Proctor) -> None:
    document = json.loads(proctor("compare", ORACLE, SCRIPTED, "--json").out)
    assert document["paired"]["method"] == "permutation-exact"
    assert document["a"]["scores"]["account"]["scored"] == 15
    turns = next(each for each in document["measures"] if each["name"] == "turns")
    assert (turns["a"]["mean"], turns["b"]["mean"]) == (None, 2.0)
    assert document["with_traces"] is True


def test_markdown_is_a_page_of_tables(proctor: Proctor) -> None:
    ran = proctor("compare", ORACLE, SCRIPTED, "--markdown", "--no-behaviour")
    assert ran.out.startswith("# A: 03-binary-oracle-k5 (oracle) against B: ")
    assert "| task | A | mean A | B | mean B | A - B | trial of A | trial of B |" in ran.out


def test_groups_of_one_job_are_compared_with_each_other(proctor: Proctor) -> None:
    refused = proctor("compare", MIXED, MIXED)
    assert refused.code == 2
    assert "4 agents and models match; pass --a with a part of one name: nop · " in refused.err
    ran = proctor("compare", MIXED, MIXED, "--a", "oracle", "--b", "5cc4386e2d3e", "--json")
    document = json.loads(ran.out)
    assert (document["a"]["agent"], document["b"]["agent"]) == ("oracle", "scripted")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((ORACLE, JOBS / "05-rewards-oracle-k1"), "A and B have no task in common"),
        ((ORACLE, MIXED, "--b", "oracle"), "3 tasks only in B (acme/packaged-name, fractional, "),
        ((ORACLE, "nowhere"), "nowhere: there is no such directory, and no ledger at "),
        ((ORACLE, JOBS.parent / "README.md"), "README.md"),
        ((ORACLE, SCRIPTED, "--json", "--markdown"), "--json cannot be combined with --markdown"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_sentence(
    proctor: Proctor, arguments: tuple[object, ...], sentence: str
) -> None:
    ran = proctor("compare", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err


def test_an_unknown_experiment_of_a_ledger_is_named(proctor: Proctor) -> None:
    assert proctor("import", "harbor", SCRIPTED).code == 0
    ran = proctor("compare", "04-binary-scripted-k5", "nowhere")
    assert ran.code == 2
    assert "nowhere: no such directory; " in ran.err
    assert "there are 04-binary-scripted-k5" in ran.err


def test_a_directory_without_jobs_does_not_hide_an_experiment(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in (ORACLE, SCRIPTED):
        assert proctor("import", "harbor", job).code == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / ORACLE.name).mkdir()
    (tmp_path / ORACLE.name / "agent.py").touch()
    ran = proctor("compare", ORACLE.name, SCRIPTED.name, "--no-behaviour", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["a"]["run"] == ORACLE.name
    (tmp_path / "other").mkdir()
    ran = proctor("compare", "other", SCRIPTED.name)
    assert ran.code == 2
    assert "other: " in ran.err


def test_a_job_equals_the_experiment_it_was_brought_into(proctor: Proctor) -> None:
    for job in (ORACLE, SCRIPTED):
        assert proctor("import", "harbor", job).code == 0
    sealed = json.loads(proctor("compare", ORACLE.name, SCRIPTED.name, "--json").out)
    plain = json.loads(proctor("compare", ORACLE, SCRIPTED, "--json").out)
    assert sealed["a"]["statuses"] == {"diagnostic": 15}
    for part in ("paired", "tasks", "measures"):
        assert sealed[part] == plain[part]


def rollouts(rewards: list[float], adapter: str | None) -> tuple[dict[str, Any], list[Any]]:
    """An evaluation of Prime's, of a base or with an adapter on it."""
    name = adapter or "base"
    evaluation = {**EVALUATION, "evaluation_id": name, "metadata": {"adapter": adapter}}
    info = make_b("x")["info"]
    samples = [
        make_b(f"{name}-{at}", example_id=at, reward=reward, metrics={},
               info={**info, "task_id": f"hvac/task-{at}"})
        for at, reward in enumerate(rewards)
    ]  # fmt: skip
    return evaluation, samples


def test_base_and_adapter_rollouts_are_compared_and_labelled_diagnostic(
    proctor: Proctor, tmp_path: Path
) -> None:
    for experiment, rewards in (("base", [0.0, 0.5, 0.25]), ("adapter", [1.0, 0.5, 0.75])):
        evaluation, samples = rollouts(rewards, None if experiment == "base" else "lora-7")
        (tmp_path / "e.json").write_text(json.dumps(evaluation))
        (tmp_path / "s.json").write_text(json.dumps({"samples": samples}))
        brought = proctor(
            "import", "prime", "-e", experiment, "--evaluation-json", tmp_path / "e.json",
            "--samples-json", tmp_path / "s.json",
        )  # fmt: skip
        assert brought.code == 0, brought.err
    ran = proctor("compare", "adapter", "base")
    assert (ran.code, ran.err) == (0, "")
    assert "A - B    +0.5" in ran.out
    assert "Diagnostic: 3 of the 3 trials of A have partial records" in ran.out
    assert "tasks    A better at 2, alike at 1, B better at 0" in ran.out
    assert "tokens in" in ran.out
    assert "proctor show base/" in ran.out


def test_a_ledger_that_is_named_goes_before_a_directory_of_the_same_name(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "ledger"
    for job in (ORACLE, SCRIPTED):
        assert proctor("import", "harbor", job, "--ledger", place).code == 0
    (tmp_path / ORACLE.name).mkdir()
    monkeypatch.chdir(tmp_path)
    ran = proctor("compare", ORACLE.name, SCRIPTED, "--ledger", place, "--no-behaviour", "--json")
    assert (ran.code, ran.err) == (0, "")
    statuses = [json.loads(ran.out)[side]["statuses"] for side in ("a", "b")]
    assert statuses == [{"diagnostic": 15}, {"unsealed": 15}]
