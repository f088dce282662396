"""The page of one trial: of plain jobs, of sealed ones, and of one that means harm."""

from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from proctor.errors import NotThereError
from proctor.ledger.entry import TrialScore
from proctor.ledger.query import find_trial
from proctor.ledger.review import append_supersession
from proctor.ledger.sealing import seal
from proctor.ledger.withhold import Why, withhold_evidence, withhold_trial
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.exchange.prime.samples import make_b, submit
from tests.ledger.ledgers import EXPERIMENT, artifact_path
from tests.web.browsing import NO_TLS, serving
from tests.web.looking import PHONE, find_barriers, is_too_wide, watch_dialogs
from tests.web.sealed import JOBS, copy_job, open_for_writing, seal_files, seal_harm, seal_jobs

ERRORS, STEPS, REWARDS = (
    "06-errors-oracle-k1",
    "10-multistep-oracle-mounted",
    "05-rewards-oracle-k1",
)


def look(source: DataSource, path: str) -> httpx.Response:
    with serving(make_app(source)) as address:
        return httpx.get(address + path, verify=NO_TLS, trust_env=False)


def look_at_jobs(*paths: str) -> list[httpx.Response]:
    with serving(make_app(DataSource(jobs=tuple(JOBS.iterdir())))) as address:
        return [httpx.get(address + path, verify=NO_TLS, trust_env=False) for path in paths]


def test_every_real_trial_has_a_page() -> None:
    paths = [
        f"/trials/{trial.parent.name}/{trial.name}"
        for job in sorted(JOBS.iterdir())
        for trial in sorted(each for each in job.iterdir() if each.is_dir())[:2]
    ]
    assert len(paths) > 35
    assert {found.status_code for found in look_at_jobs(*paths)} == {200}


def test_a_trial_in_a_job_says_how_its_score_came_to_be_and_what_is_not_known(page: Page) -> None:
    with serving(make_app(DataSource(jobs=(JOBS / REWARDS,)))) as address:
        page.goto(f"{address}/trials/{REWARDS}/fractional__vgVZHBq")
        expect(page.locator(".score .number")).to_have_text("0.5")
        words = page.locator("ol.derivation")
        expect(words).to_contain_text("verifier/reward.txt is read as reward = 0.5")
        expect(words).to_contain_text("the reward file counts")
        expect(page.get_by_text("0x1.0000000000000p-1")).to_be_visible()
        expect(page.get_by_text("not sealed", exact=True).first).to_be_visible()
        expect(page.get_by_text("unknown", exact=True).first).to_be_visible()
        expect(page.get_by_text("Reviews are stored in a ledger")).to_be_visible()
        assert find_barriers(page) == ""


def test_an_unscored_trial_says_why_in_words_and_shows_the_evidence(page: Page) -> None:
    with serving(make_app(DataSource(jobs=(JOBS / ERRORS,)))) as address:
        page.goto(f"{address}/trials/{ERRORS}/verifier-timeout__U2NynYW")
        expect(page.locator(".score .number")).to_have_text("not scored")
        expect(page.get_by_text("the verifier timed out")).to_be_visible()
        expect(page.locator("ol.derivation")).to_contain_text("but does not count")
        expect(page.locator("ul.evidence")).to_contain_text("Verifier execution timed out")
        expect(page.locator("table.phases tr").last).to_contain_text("1.5s")


def test_steps_are_put_together_in_the_order_they_were_run() -> None:
    mean, final = look_at_jobs(
        f"/trials/{STEPS}/ms-mean__A9zULhJ", f"/trials/{STEPS}/ms-final__boDgCX9"
    )
    assert "the mean over the steps" in mean.text
    assert mean.text.index("steps/two/verifier/reward.json") < mean.text.index(
        "steps/three/verifier/reward.json"
    )
    assert "The value used is the last step&#39;s" in final.text
    assert "verifier, step two" in final.text


def test_a_reward_that_was_edited_since_is_seen(tmp_path: Path) -> None:
    ledger = seal_jobs(tmp_path, REWARDS)
    honest = look(DataSource(ledger=ledger), f"/trials/{REWARDS}/fractional__vgVZHBq")
    assert "does not match the recorded numbers" not in honest.text
    with open_for_writing(tmp_path) as opened:
        row = find_trial(opened, f"{REWARDS}/fractional__vgVZHBq")
        found = opened.index.entry(row.seq)
    assert found is not None
    segment = ledger / "entries" / "000000.jsonl"
    data = bytearray(segment.read_bytes())
    line = bytes(data[found.place.offset : found.place.offset + found.length])
    assert b'"reward":0.5' in line
    at = data.index(b'"reward":0.5', found.place.offset)
    data[at : at + 12] = b'"reward":1.5'
    segment.write_bytes(data)
    edited = look(DataSource(ledger=ledger), f"/trials/{REWARDS}/fractional__vgVZHBq")
    assert edited.status_code == 200
    assert "ledger is damaged" in edited.text
    assert "differs from what was signed" in edited.text
    assert "1.5" not in edited.text


def test_a_basis_of_another_name_hides_no_other_number(tmp_path: Path) -> None:
    files = {"result.json": b'{"trial_name": "t1"}', "verifier/reward.txt": b"0"}
    one = {"reward": "0x1.0000000000000p+0"}
    certificate = {"job": 0, "trial": "t1", "task": "task", "group": "agent__model__data"}
    score = TrialScore(
        profile="harbor-0.13.1",
        certificate={**certificate, "rewards": one, "basis": "trial result", "exception": None},
    )
    rewards = {"evaluation.reward": 1.0, "evaluation.breakdown": {"reward": 1.0}}
    ledger = seal_files(tmp_path, "t1", files, score, **rewards)
    seen = look(DataSource(ledger=ledger), f"/trials/{EXPERIMENT}/t1")
    assert "does not match the recorded numbers" in seen.text


def test_kept_attempts_and_the_trial_lead_to_each_other(tmp_path: Path) -> None:
    job = copy_job(tmp_path, ERRORS)
    kept = copy_job(tmp_path / "kept", ERRORS) / "good-one__XEzVDEt"
    (job / "good-one__XEzVDEt" / "attempts").mkdir()
    kept.rename(job / "good-one__XEzVDEt" / "attempts" / "1")
    source = DataSource(jobs=(job,))
    whole = look(source, f"/trials/{ERRORS}/good-one__XEzVDEt")
    assert f'href="/trials/{ERRORS}/good-one__XEzVDEt.attempt-1"' in whole.text
    attempt = look(source, f"/trials/{ERRORS}/good-one__XEzVDEt.attempt-1")
    assert attempt.status_code == 200
    assert f'href="/trials/{ERRORS}/good-one__XEzVDEt"' in attempt.text


def test_what_stands_in_for_what_is_seen_from_both_sides(tmp_path: Path) -> None:
    ledger = seal_jobs(tmp_path, ERRORS)
    with open_for_writing(tmp_path) as opened:
        one = find_trial(opened, f"{ERRORS}/build-fail__dVG2ioy")
        other = find_trial(opened, f"{ERRORS}/good-one__XEzVDEt")
        append_supersession(opened, one, other, "infrastructure", reason="disk", author="ana")
    replaced = look(DataSource(ledger=ledger), f"/trials/{ERRORS}/build-fail__dVG2ioy").text
    assert "Replaced by" in replaced
    assert f'href="/trials/{ERRORS}/good-one__XEzVDEt"' in replaced
    standing = look(DataSource(ledger=ledger), f"/trials/{ERRORS}/good-one__XEzVDEt").text
    assert "Replaces" in standing
    assert f'href="/trials/{ERRORS}/build-fail__dVG2ioy"' in standing


def test_a_sample_of_primes_says_what_it_rests_on(tmp_path: Path, page: Page) -> None:
    with open_for_writing(tmp_path) as opened:
        seal(opened, [submit(make_b())])
    with serving(make_app(DataSource(ledger=tmp_path / "ledger"))) as address:
        page.goto(f"{address}/trials/nightly/prime-ev1-s1")
        expect(page.get_by_text("the reward is only what the record states")).to_be_visible()
        expect(page.get_by_text("Only durations were recorded")).to_be_visible()
        expect(page.get_by_text("The record is partial.")).to_be_visible()
        expect(page.locator("dl.facts").last).to_contain_text("prime")
        assert find_barriers(page) == ""


def test_withheld_lost_and_never_there_are_three_things(tmp_path: Path, page: Page) -> None:
    ledger = seal_jobs(tmp_path, ERRORS)
    trial = f"{ERRORS}/good-one__XEzVDEt"
    with open_for_writing(tmp_path) as opened:
        row = find_trial(opened, trial)
        why = Why("a key leaked into it", "ana")
        withhold_evidence(opened, row, why, ["result.json"])
        opened.refresh()
        entry = opened.entry(row.seq)
        digest = next(each.sha256 for each in entry.evidence if each.path == "config.json")  # type: ignore[union-attr]
        artifact_path(opened, digest).unlink()
    with serving(make_app(DataSource(ledger=ledger))) as address:
        page.goto(f"{address}/trials/{trial}")
        files = page.locator("table.files")
        expect(files.get_by_role("row", name="result.json").last).to_contain_text(
            "withheld a key leaked into it (ana"
        )
        expect(files.get_by_role("row", name="config.json").last).to_contain_text("lost")
        names = ("result.json", "config.json", "never.txt")
        codes = [
            page.request.get(f"{address}/trials/{trial}/files/{name}").status for name in names
        ]
        assert codes == [410, 500, 404]


def test_a_withheld_trial_says_so_and_why(tmp_path: Path, page: Page) -> None:
    ledger = seal_jobs(tmp_path, ERRORS)
    with open_for_writing(tmp_path) as opened:
        row = find_trial(opened, f"{ERRORS}/good-one__XEzVDEt")
        withhold_trial(opened, row, Why("a key leaked", "ana"))
    with serving(make_app(DataSource(ledger=ledger))) as address:
        page.goto(f"{address}/trials/{ERRORS}/good-one__XEzVDEt")
        expect(page.get_by_text("This trial was withheld.")).to_be_visible()
        expect(page.get_by_text("a key leaked (ana")).to_be_visible()
        expect(page.locator(".score .number")).to_have_text("withheld")
        assert find_barriers(page) == ""


def test_a_name_that_is_not_there_leads_nowhere() -> None:
    found = look_at_jobs(
        f"/trials/{ERRORS}/no-such-trial",
        f"/trials/{ERRORS}/good-one",
        "/trials/no-such-job/good-one__XEzVDEt",
        f"/trials/{ERRORS}/%2e%2e",
        f"/trials/{ERRORS}/%2e%2e%2f{ERRORS}",
        f"/trials/{ERRORS}/good-one__XEzVDEt%00",
        f"/trials/{ERRORS}/config.json",
    )
    assert {each.status_code for each in found} == {404}


def test_a_link_in_a_job_is_no_trial(tmp_path: Path) -> None:
    job = copy_job(tmp_path, ERRORS)
    (job / "linked__aaaaaaa").symlink_to(job / "good-one__XEzVDEt")
    with pytest.raises(NotThereError):
        DataSource(jobs=(job,)).trial_directory(ERRORS, "linked__aaaaaaa")
    assert look(DataSource(jobs=(job,)), f"/trials/{ERRORS}/linked__aaaaaaa").status_code == 404


def test_a_trial_that_is_half_written_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    job = copy_job(tmp_path, ERRORS)
    trial = job / "good-one__XEzVDEt"
    whole = look(DataSource(jobs=(job,)), f"/trials/{ERRORS}/good-one__XEzVDEt")
    assert "torn or not JSON" not in whole.text
    (trial / "result.json").write_text('{"task_name": "torn')
    torn = look(DataSource(jobs=(job,)), f"/trials/{ERRORS}/good-one__XEzVDEt")
    assert torn.status_code == 200
    assert "torn or not JSON" in torn.text
    assert "verifier/reward.txt" in torn.text


def test_harm_in_every_field_neither_runs_nor_breaks_the_page(tmp_path: Path, page: Page) -> None:
    ledger = seal_harm(tmp_path)
    dialogs = watch_dialogs(page)
    page.set_viewport_size(PHONE)
    with serving(make_app(DataSource(ledger=ledger))) as address:
        for path in ("", "/files/artifacts/page.html", "/files/verifier/test-stdout.txt"):
            response = page.goto(f"{address}/trials/experiment-001/harm{path}")
            assert response is not None
            assert response.status == 200
            page.wait_for_load_state("networkidle")
            assert not is_too_wide(page), path
            assert page.evaluate("window.hacked") is None
        page.goto(f"{address}/trials/experiment-001/harm")
        assert "\u202e" not in page.content()
        assert "\\x1b[31m" in page.content()
        assert "\x1b" not in page.content()
        expect(page.get_by_text("The record states the reward 0.0")).to_be_visible()
        expect(page.get_by_role("img", name="artifacts/true.png")).to_be_visible()
        assert page.get_by_role("img", name="artifacts/lie.png").count() == 0
        assert find_barriers(page) == ""
    assert dialogs == []
