"""`proctor gate` on real jobs and a small ledger: its exit codes, its sentences, its files."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.exchange.intake import seal_offers
from proctor.ledger.api import Ledger
from proctor.ledger.query import find_trial, load_position
from proctor.ledger.review import append_supersession
from tests.cli.programs import Proctor

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
PASSING = JOBS / "04-binary-scripted-k5"
ERRORS = JOBS / "06-errors-oracle-k1"
KILLED = JOBS / "31-killed-before-resume"


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place = tmp_path / "ledger"
    for job in (PASSING, ERRORS):
        seal_offers(find_trials(job, JobOptions()).offers, partial(Ledger.open_or_create, place))
    monkeypatch.setenv("PROCTOR_LEDGER", str(place))
    return place


@pytest.mark.parametrize(
    ("job", "asked", "code", "name"),
    [
        (PASSING, ["--min-mean", "0.6", "--min-pass-rate", "0.6"], 0, "met"),
        (PASSING, ["--require-complete", "--min-trials", "15", "--max-errors", "0"], 0, "met"),
        (PASSING, ["--max-cost-usd", "0.03"], 0, "met"),
        (PASSING, ["--min-mean", "0.61"], 1, "score"),
        (PASSING, ["--min-pass-rate", "0.61"], 1, "score"),
        (PASSING, ["--min-trials", "16"], 3, "incomplete"),
        (PASSING, ["--max-cost-usd", "0.01"], 6, "cost"),
        (ERRORS, ["--max-errors", "6"], 4, "errors"),
        (ERRORS, ["--max-errors", "7"], 0, "met"),
        (ERRORS, ["--max-errors", "50%"], 4, "errors"),
        (ERRORS, ["--max-errors", "0.8"], 0, "met"),
        (JOBS / "29-passk-20", ["--max-errors", "0%", "--require-complete"], 0, "met"),
        (ERRORS, ["--max-errors", "6", "--ignore-error", "AgentTimeoutError"], 0, "met"),
        (ERRORS, ["--max-cost-usd", "100"], 6, "cost"),
        (KILLED, ["--min-mean", "1"], 0, "met"),
        (KILLED, ["--min-mean", "1", "--require-complete"], 3, "incomplete"),
        (JOBS / "12-nan-oracle", ["--min-mean", "0"], 1, "score"),
        (JOBS / "14-two-models", ["--min-mean", "1"], 0, "met"),
        (JOBS / "05-rewards-oracle-k1", ["--min-mean", "0.5"], 0, "met"),
        (JOBS / "05-rewards-oracle-k1", ["--min-mean", "0.5", "--reward-key", "speed"], 1, "score"),
    ],
)
def test_each_way_to_miss_has_its_code(
    proctor: Proctor, job: Path, asked: list[str], code: int, name: str
) -> None:
    ran = proctor("gate", job, *asked)
    assert ran.code == code
    assert ran.out.splitlines()[-1].endswith(f"{name} (exit code {code})")


def test_a_trial_without_the_chosen_reward_is_scored_as_everywhere(proctor: Proctor) -> None:
    ran = proctor("gate", JOBS / "05-rewards-oracle-k1", "--min-mean", "0.5", "--json")
    (group,) = json.loads(ran.out)["runs"][0]["groups"]
    assert (group["run"], group["scored"], group["zero_by_missing"]) == (14, 6, 8)


def test_all_misses_are_printed_and_the_gravest_decides(proctor: Proctor) -> None:
    asked = ["--min-mean", "1", "--max-errors", "0", "--max-cost-usd", "1", "--min-trials", "9"]
    ran = proctor("gate", ERRORS, *asked)
    missed = [line.rsplit("(", 1)[1] for line in ran.out.splitlines() if "MISSED  " in line]
    assert missed == ["errors, 4)", "incomplete, 3)", "score, 1)", "cost, 6)"]
    assert ran.code == 3


def test_the_mean_is_the_one_that_score_gives_with_its_denominators(proctor: Proctor) -> None:
    scored = json.loads(proctor("score", ERRORS, "--json").out)
    ran = json.loads(proctor("gate", ERRORS, "--min-mean", "0", "--json").out)
    (run,) = ran["runs"]
    (group,) = run["groups"]
    assert group["mean"] == scored["outcome"]["score"]
    counts = scored["denominators"]
    assert run["denominators"]["planned"] == counts["planned"] == 9
    assert (group["run"], group["scored"]) == (counts["run"], counts["scored"])
    assert group["zero_by_missing"] == counts["zero_by_missing"] == 6
    assert ran["met"] is True
    shown = proctor("gate", ERRORS, "--min-mean", "0").out
    assert "9 run, 3 scored, 6 missing (counted as 0)" in shown
    assert "trials: 9 planned = 9 run + 0 cannot be read + 0 not run" in shown


def test_an_unknown_cost_is_told_and_not_taken_for_0(proctor: Proctor) -> None:
    ran = proctor("gate", ERRORS, "--max-cost-usd", "100")
    assert "unknown for all of 9 trials" in ran.out


def test_a_mean_just_below_its_limit_does_not_look_equal_to_it(proctor: Proctor) -> None:
    ran = proctor("gate", JOBS / "01-binary-oracle-k1", "--min-mean", "0.667")
    assert "mean >= 0.667: 0.6666666666666666 [" in ran.out


def test_a_run_that_is_not_over_is_told_of_even_where_it_is_let_pass(proctor: Proctor) -> None:
    ran = proctor("gate", KILLED, "--min-mean", "1")
    assert "2 of 4 planned trials did not run; the job did not finish" in ran.out


def test_an_interval_for_few_tasks_is_wider(proctor: Proctor) -> None:
    asked = ["gate", ERRORS, "--min-mean", "0"]
    assert "mean  0.333 [0.111, 0.667]" in proctor(*asked).out
    ran = proctor(*asked, "--interval", "student")
    assert "mean  0.333 [-0.051, 0.718]" in ran.out


def test_an_interval_whose_library_is_missing_names_what_installs_it(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    monkeypatch.delitem(sys.modules, "proctor.report.statistics.student", raising=False)
    ran = proctor("gate", PASSING, "--min-mean", "0", "--interval", "student")
    assert (ran.code, ran.out) == (2, "")
    assert "not installed: pip install 'proctor[stats]'" in ran.err


def test_several_runs_are_held_against_the_limits_each_by_itself(proctor: Proctor) -> None:
    ran = proctor("gate", PASSING, ERRORS, "--min-mean", "0.5")
    assert ran.code == 1
    assert ran.out.count("MISSED  ") == 1


@pytest.mark.parametrize(("most", "code"), [("0.5", 1), ("0.7", 0)])
def test_a_drop_is_measured_by_task(proctor: Proctor, most: str, code: int) -> None:
    job, baseline = JOBS / "02-binary-nop-k1", JOBS / "01-binary-oracle-k1"
    ran = proctor("gate", job, "--against", baseline, "--max-drop", most)
    assert ran.code == code
    assert "-0.667 [-1, 0] over 3 tasks: 0 won, 1 tied, 2 lost, p = 0.5" in ran.out


def test_tasks_that_only_one_side_has_are_told_of(proctor: Proctor) -> None:
    ran = proctor("gate", JOBS / "13-single-task-adhoc", "--against", PASSING)
    assert ran.code == 0
    assert "over 1 task: " in ran.out
    assert "not compared: 2 tasks only in 04-binary-scripted-k5" in ran.out


def test_nothing_in_common_is_no_comparison(proctor: Proctor) -> None:
    ran = proctor("gate", PASSING, "--against", ERRORS)
    assert (ran.code, "no task in common" in ran.out) == (3, True)


def test_a_reward_that_is_not_finite_cannot_be_compared(proctor: Proctor) -> None:
    job = JOBS / "12-nan-oracle"
    ran = proctor("gate", job, "--against", job)
    assert (ran.code, "a reward is not finite" in ran.out) == (1, True)


def test_a_baseline_of_several_groups_is_refused(proctor: Proctor) -> None:
    ran = proctor("gate", ERRORS, "--against", JOBS / "42-config-multi")
    assert ran.code == 2
    assert "expected one, or the groups of 06-errors-oracle-k1" in ran.err


@pytest.mark.parametrize("text", ["-1", "1.5", "150%", "many", "nan", "٣", "9" * 5000])
def test_errors_are_counted_in_trials_or_shares(proctor: Proctor, text: str) -> None:
    ran = proctor("gate", PASSING, f"--max-errors={text}")
    assert ran.code == 2
    assert "expected trials (3) or a share of them (0.05, 5%)" in ran.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([PASSING], "no threshold given"),
        ([PASSING, "--min-mean", "nan"], "expected a number"),
        ([PASSING, "--max-cost-usd", "-1"], "expected a number, 0 or more"),
        ([PASSING, "--min-mean", "0", "--max-drop", "1"], "--max-drop requires --against"),
        ([PASSING, "--min-mean", "0", "--planned", "3"], "--planned is for experiments"),
        ([PASSING, "--min-mean", "0", "--json", "--markdown", "-"], "both are for stdout"),
        ([PASSING, "--min-mean", "0", "--reward-key", "x"], "no trial has a reward 'x'"),
        ([PASSING / "result.json", "--min-mean", "0"], "expected a"),
        ([JOBS, "--min-mean", "0"], "job directories, not one job"),
    ],
)
def test_wrong_use_is_a_sentence(proctor: Proctor, arguments: list[object], sentence: str) -> None:
    ran = proctor("gate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err


def test_names_that_lead_nowhere_are_told(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "none"))
    ran = proctor("gate", "nightly", "--min-mean", "0")
    assert ran.code == 2
    assert "nightly: there is no such job directory, and no ledger at" in ran.err
    (tmp_path / "empty").mkdir()
    assert "empty directory" in proctor("gate", tmp_path / "empty", "--min-mean", "0").err


def test_a_job_in_which_nothing_ran_is_incomplete(proctor: Proctor, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for name in ("config.json", "lock.json"):
        shutil.copy(KILLED / name, job / name)
    ran = proctor("gate", job, "--min-mean", "0")
    assert (ran.code, "none ran" in ran.out) == (3, True)


def test_a_torn_result_is_damage(proctor: Proctor, tmp_path: Path) -> None:
    job = shutil.copytree(PASSING, tmp_path / "job")
    torn = next(job.glob("*/result.json"))
    torn.write_text(torn.read_text()[:100])
    ran = proctor("gate", job, "--min-mean", "0")
    assert ran.code == 5
    assert f"{torn}" in ran.out
    assert "trials: 15 planned = 14 run + 1 cannot be read + 0 not run" in ran.out


def test_a_torn_lock_is_damage_and_the_rewards_are_read_all_the_same(
    proctor: Proctor, tmp_path: Path
) -> None:
    job = shutil.copytree(PASSING, tmp_path / "job")
    (job / "lock.json").write_text("{")
    ran = proctor("gate", job, "--min-mean", "0.6")
    assert (ran.code, "ok      scripted__model-x__binary: mean >= 0.6" in ran.out) == (5, True)


def test_rewards_too_large_for_a_mean_reach_no_floor(proctor: Proctor, tmp_path: Path) -> None:
    job = shutil.copytree(JOBS / "13-single-task-adhoc", tmp_path / "job")
    (trial,) = job.glob("pass-simple__*")
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / "reward.json").write_text('{"reward": -1' + "0" * 400 + "}")
    ran = proctor("gate", job, "--min-mean", "0", "--junit", tmp_path / "gate.xml")
    assert (ran.code, "mean >= 0.0: nan" in ran.out) == (1, True)
    assert f"reward -1{'0' * 37}…; expected" in (tmp_path / "gate.xml").read_text()


def test_an_edited_reward_is_damage_where_the_evidence_is_checked(
    proctor: Proctor, tmp_path: Path
) -> None:
    job = shutil.copytree(PASSING, tmp_path / "job")
    for trial in job.glob("*/result.json"):
        trial.write_text(trial.read_text().replace('"reward": 0.0', '"reward": 1.0'))
    assert proctor("gate", job, "--min-mean", "0.61").code == 1
    ran = proctor("gate", job, "--min-mean", "0.61", "--check-evidence")
    assert (ran.code, "edited-reward" in ran.out) == (5, True)


def test_an_experiment_gives_the_numbers_of_its_job(proctor: Proctor, ledger: Path) -> None:
    for job in (PASSING, ERRORS):
        asked = ["--min-mean", "0.5", "--max-errors", "3", "--max-cost-usd", "1", "--json"]
        plain = json.loads(proctor("gate", job, *asked).out)
        sealed = json.loads(proctor("gate", job.name, *asked).out)
        assert sealed["exit_code"] == plain["exit_code"]
        (one,), (other,) = plain["runs"], sealed["runs"]
        assert other["groups"] == one["groups"]
        assert other["cost_usd"] == one["cost_usd"]
        assert other["errors"]["count"] == one["errors"]["count"]
        assert (other["kind"], other["place"]) == ("experiment", str(ledger))
        assert other["denominators"]["planned"] is None


def test_an_experiment_is_complete_only_where_somebody_says_what_was_planned(
    proctor: Proctor, ledger: Path
) -> None:
    asked = ["gate", PASSING.name, "--require-complete"]
    ran = proctor(*asked)
    assert (ran.code, "has no plan for it: pass" in ran.out) == (3, True)
    assert proctor(*asked, "--planned", "15").code == 0
    assert proctor(*asked, "--planned", "16").code == 3
    assert proctor(*asked, "--planned", "14").code == 2


def test_a_trial_that_was_superseded_is_in_no_number(proctor: Proctor, ledger: Path) -> None:
    with Ledger.open_or_create(ledger) as opened:
        attempts = load_position(opened, experiment=PASSING.name).trials
        task = [each for each in attempts if each.task_id == attempts[0].task_id]
        first, second = (find_trial(opened, each.name) for each in task[:2])
        append_supersession(opened, first, second, "infrastructure", reason="x", author="ann")
    ran = proctor("gate", PASSING.name, "--min-trials", "15")
    assert ran.code == 3
    assert "1 superseded or restarted: not counted" in ran.out


def test_a_ledger_that_was_edited_is_damage(proctor: Proctor, ledger: Path) -> None:
    segment = next((ledger / "entries").iterdir())
    segment.write_bytes(segment.read_bytes().replace(b'"reward":1', b'"reward":2', 1))
    ran = proctor("gate", PASSING.name, "--min-mean", "0")
    assert ran.code == 5
    assert "edited: " in ran.out
    assert proctor("gate", ERRORS, "--against", PASSING.name).code == 5


def test_a_torn_checkpoint_is_damage(proctor: Proctor, ledger: Path) -> None:
    (ledger / "checkpoint").write_bytes(b"torn")
    assert proctor("gate", PASSING.name, "--min-mean", "0").code == 5


def test_missing_evidence_is_damage_where_it_is_checked(proctor: Proctor, ledger: Path) -> None:
    next(each for each in (ledger / "artifacts").rglob("*") if each.is_file()).unlink()
    assert proctor("gate", PASSING.name, "--min-mean", "0").code == 0
    ran = proctor("gate", PASSING.name, "--min-mean", "0", "--check-evidence")
    assert (ran.code, "missing-artifact" in ran.out) == (5, True)


def test_an_experiment_that_is_not_there_is_told(proctor: Proctor, ledger: Path) -> None:
    ran = proctor("gate", "nightly", "--min-mean", "0")
    assert ran.code == 2
    assert "no trial of the experiment 'nightly'" in ran.err
    assert "a ledger; expected a job" in proctor("gate", ledger, "--min-mean", "0").err


def test_files_are_written_whole_and_not_into_what_was_read(
    proctor: Proctor, tmp_path: Path
) -> None:
    junit, page = tmp_path / "gate.xml", tmp_path / "gate.md"
    ran = proctor("gate", ERRORS, "--max-errors", "0", "--junit", junit, "--markdown", page)
    assert ran.code == 4
    root = ElementTree.parse(junit).getroot()  # noqa: S314 - our own
    assert [suite.get("name") for suite in root] == ["gate", ERRORS.name]
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("10", "1", "7")
    assert page.read_text().startswith("## Gate missed: errors (exit code 4)\n")
    job = shutil.copytree(PASSING, tmp_path / "job")
    ran = proctor("gate", job, "--min-mean", "0", "--junit", job / "gate.xml")
    assert (ran.code, ran.out) == (2, "")
    assert not (job / "gate.xml").exists()
    ran = proctor("gate", job, "--min-mean", "0", "--junit", tmp_path / "none" / "gate.xml")
    assert (ran.code, "cannot be written" in ran.err) == (2, True)


def test_the_page_alone_is_on_stdout_where_it_is_asked_for(proctor: Proctor) -> None:
    ran = proctor("gate", PASSING, "--min-mean", "0.5", "--markdown", "-")
    assert ran.out.startswith("## Gate met\n")
    assert ran.out.count("| ✓ | mean") == 1
    assert ran.err == "proctor: gate met (exit code 0)\n"
