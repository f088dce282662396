"""`proctor score`: numbers for people and for programs, and what they rest on."""

import json
import os
from pathlib import Path

import pytest

from tests.audit.directories import COPIED, JOBS, NAMES, copy_job, edit_json, listing, make_job
from tests.cli.programs import Proctor

BINARY, ERRORS = COPIED / "01-binary-oracle-k1", COPIED / "06-errors-oracle-k1"


@pytest.mark.parametrize("name", NAMES)
def test_the_stats_of_a_real_job_come_out_as_it_published_them(proctor: Proctor, name: str) -> None:
    before = listing(JOBS / name)
    ran = proctor("score", JOBS / name, "--json")
    published = json.loads((JOBS / name / "result.json").read_text())
    assert json.loads(ran.out)["stats"] == published["stats"]
    assert ran.code in (0, 3)
    assert listing(JOBS / name) == before


@pytest.mark.parametrize("name", NAMES)
def test_people_see_every_group_metric_and_pass_at_k(proctor: Proctor, name: str) -> None:
    ran = proctor("score", JOBS / name, "--explain")
    evals = json.loads((JOBS / name / "result.json").read_text())["stats"]["evals"]
    for key, group in evals.items():
        assert f"\n{key}: " in ran.out
        assert all(f"pass@{k} " in ran.out for k in group["pass_at_k"])
    assert "status " in ran.out.splitlines()[-1]
    assert ran.err == ""


def test_denominators_are_printed_with_every_mean(proctor: Proctor) -> None:
    ran = proctor("score", ERRORS)
    assert ran.code == 3
    assert (
        "oracle__errors: 9 run, 3 scored, 7 errored (scored or not), 6 missing (counted as 0)"
        in ran.out
    )
    assert "  mean  0.333" in ran.out
    assert "trials: 9 planned = 9 run + 0 cannot be read + 0 not run" in ran.out
    assert "9 run = 3 scored + 6 missing (counted as 0); 7 errored (scored or not)" in ran.out
    assert "rewards taken from: " in ran.out


def test_a_script_reads_the_same_denominators(proctor: Proctor) -> None:
    document = json.loads(proctor("score", ERRORS, "--json").out)
    assert document["denominators"] == {
        "planned": 9,
        "run": 9,
        "scored": 3,
        "errored": 7,
        "zero_by_missing": 6,
        "broken": 0,
        "not_run": 0,
    }
    group = document["groups"]["oracle__errors"]
    assert group["metrics"][0]["value"] == {"mean": 1 / 3}
    assert group["metrics"][0]["origin"] == "computed"
    assert document["carried_over"] == ["n_cancelled_trials", "n_retries"]
    assert document["outcome"]["status"] == "failed"
    bases = {trial["trial"].partition("__")[0]: trial["basis"] for trial in document["trials"]}
    assert bases["good-one"] == "reward file"
    assert bases["verifier-timeout"] == "trial result"
    assert "explain" not in document


def test_explaining_lists_the_operands_as_hex(proctor: Proctor) -> None:
    ran = proctor("score", BINARY, "--explain")
    assert "  [2] pass-two__uNMGZxy: reward = 0x1.0000000000000p+0 (1.0) (reward file)" in ran.out
    document = json.loads(proctor("score", BINARY, "--explain", "--json").out)
    assert document["explain"] == ran.out[ran.out.index("profile harbor") :].splitlines()


def test_several_jobs_are_scored_as_one(proctor: Proctor, tmp_path: Path) -> None:
    jobs = [make_job(tmp_path / f"j{i}", {"a": [text]}) for i, text in enumerate("10011")]
    ran = proctor("score", *jobs)
    assert ran.code == 0
    assert "  mean    0.6\n  pass@2  0.9\n  pass@4  1\n  pass@5  1\n" in ran.out
    assert ran.out.startswith("j0, j1, j2, j3, j4, scored by harbor-0.13.1\n")


def test_jobs_that_make_no_honest_number_are_refused_unless_allowed(
    proctor: Proctor, tmp_path: Path
) -> None:
    jobs = [
        make_job(tmp_path / "one", {"a": ["1"], "b": ["1"]}),
        make_job(tmp_path / "two", {"a": ["0"]}),
    ]
    ran = proctor("score", *jobs)
    assert (ran.code, ran.out) == (2, "")
    assert "a (2)" in ran.err
    assert "--allow-mixed" in ran.err
    assert proctor("score", *jobs, "--allow-mixed").code == 0


def test_the_same_job_twice_is_refused(proctor: Proctor) -> None:
    ran = proctor("score", BINARY, BINARY, "--allow-mixed")
    assert (ran.code, ran.out) == (2, "")
    assert "the same trial is in more than one job" in ran.err


def test_numbers_that_are_not_finite_are_shown_by_name(proctor: Proctor) -> None:
    assert "  mean  nan\n" in proctor("score", COPIED / "12-nan-oracle").out
    document = json.loads(proctor("score", COPIED / "12-nan-oracle", "--json").out)
    assert document["stats"]["evals"]["oracle__nan"]["metrics"] == [{"mean": None}]


def test_another_profile_scores_otherwise(proctor: Proctor) -> None:
    ran = proctor("score", COPIED / "12-nan-oracle", "--profile", "harbor-0.25")
    assert ran.code == 3
    assert "scored by harbor-0.25" in ran.out
    assert "  mean  0.333" in ran.out


def test_a_group_without_metrics_says_so(proctor: Proctor) -> None:
    assert "  no metric  -" in proctor("score", COPIED / "40-dataset-name-dunder").out


def test_every_key_of_a_metric_is_shown(proctor: Proctor) -> None:
    out = proctor("score", COPIED / "42-config-multi").out
    assert "  mean of correctness  0.5" in out
    assert "  sum of correctness   2" in out


def test_what_could_not_be_recomputed_is_said(proctor: Proctor, tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    script = tmp_path / "metric.py"
    script.write_text("raise SystemExit('must not run')")
    metric = {"type": "uv-script", "kwargs": {"script_path": str(script)}}
    edit_json(job / "config.json", lambda config: config.update(metrics=[metric]))
    ran = proctor("score", job)
    assert ran.code == 0
    assert "note: oracle__binary: metric uv-script is not recomputed" in ran.out
    assert "pass --run-metric-scripts to run it" in ran.out


def test_a_certificate_is_written_and_checks_out(proctor: Proctor, tmp_path: Path) -> None:
    target = tmp_path / "certificate.json"
    target.write_text("older")
    ran = proctor("score", BINARY, "--certificate", target)
    assert (ran.code, ran.err) == (0, f"certificate written to {target}\n")
    assert "profile harbor" not in ran.out
    assert proctor("check", target).code == 0


@pytest.mark.parametrize("inside", ["certificate.json", "oracle-wrong__2j385Vz/c.json", "."])
def test_a_certificate_inside_the_job_is_refused(
    proctor: Proctor, tmp_path: Path, inside: str
) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    before = listing(job)
    ran = proctor("score", job, "--certificate", job / inside)
    assert (ran.code, ran.out) == (2, "")
    assert "proctor does not write into its input" in ran.err
    assert listing(job) == before


def test_a_link_does_not_lead_a_certificate_into_the_job(proctor: Proctor, tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    (tmp_path / "link").symlink_to(job)
    (tmp_path / "c.json").symlink_to(job / "result.json")
    before = listing(job)
    for job_path, target in [
        (job, tmp_path / "link" / "c.json"),
        (tmp_path / "link", job / "c.json"),
        (job, tmp_path / "c.json"),
    ]:
        ran = proctor("score", job_path, "--certificate", target)
        assert (ran.code, ran.out) == (2, "")
        assert "proctor does not write into its input" in ran.err
    assert listing(job) == before


def test_a_certificate_that_cannot_be_written_is_said(proctor: Proctor, tmp_path: Path) -> None:
    target = tmp_path / "absent" / "c.json"
    ran = proctor("score", BINARY, "--certificate", target)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"proctor: {target}: cannot be written: No such file or directory\n"


def test_a_certificate_never_takes_the_place_of_a_device_or_pipe(
    proctor: Proctor, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ran = proctor("score", BINARY, "--certificate", pipe)
    assert (ran.code, ran.out) == (2, "")
    assert "not a plain file" in ran.err
    assert pipe.is_fifo()
