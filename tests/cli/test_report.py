"""`proctor report`: one document in four faces, and a site of pages."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.task.trees import JOBS

SCRIPTED, MIXED = JOBS / "04-binary-scripted-k5", JOBS / "42-config-multi"
ERRORS = JOBS / "06-errors-oracle-k1"


@pytest.mark.parametrize("columns", ["80", "200"])
def test_the_text_fits_the_terminal_and_has_all_its_parts(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ran = proctor("report", SCRIPTED)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.split("\n"))) <= int(columns)
    for part in ("Scores", "What was run", "pass@k and pass^k", "Task by task", "Cost",
                 "Behaviour", "Integrity and reviews", "Basis",
                 "Not computed"):  # fmt: skip
        assert f"\n{part}\n" in ran.out
    assert "oracle-wrong  ●○●●○      0.6       0.3  flaky" in ran.out
    assert "cost per success    $0.0029" in ran.out
    assert "15 = 15 scored + 0 missing" in ran.out
    # Whether a ledger has them too is not known here.
    assert re.search("records +15 read from the job's files", ran.out)


def test_what_failed_is_counted_by_reason_and_never_a_zero_in_silence(proctor: Proctor) -> None:
    facts = json.loads(proctor("report", ERRORS, "--json").out)
    (group,) = facts["groups"]
    account = group["scores"]["account"]
    assert account["counted"] == account["scored"] + account["zero_by_missing"]
    assert sum(account["reasons"].values()) == account["zero_by_missing"] > 0
    assert account["mean_errors_excluded"] > account["mean_errors_as_zero"]
    assert any("cost per success" in sentence for sentence in facts["not_computed"])


def test_several_groups_have_a_front_and_a_word_on_few_tasks(proctor: Proctor) -> None:
    two = " ".join(proctor("report", JOBS / "14-two-models").out.split())
    best = "scripted · acme/model-x; scripted · model-y"
    assert f"No group is both cheaper and better than: {best}." in two
    assert "Compare two of them with `proctor compare`." in two
    four = proctor("report", MIXED).out
    assert "Only 6 tasks: intervals from so few tasks are too narrow." in four


@pytest.mark.parametrize(
    ("job", "marked"), [("12-nan-oracle", (3, 3, 0, 2)), ("05-rewards-oracle-k1", (14, 6, 8, 1))]
)
def test_a_reward_that_is_no_number_is_not_0(
    proctor: Proctor, job: str, marked: tuple[int, int, int, int]
) -> None:
    (group,) = json.loads(proctor("report", JOBS / job, "--json").out)["groups"]
    scores, account = group["scores"], group["scores"]["account"]
    parts = ("counted", "scored", "zero_by_missing", "no_number")
    assert tuple(account[part] for part in parts) == marked
    assert (account["mean_errors_as_zero"], scores["pass_interval"], scores["pass_at"]) == (
        None,
        None,
        [],
    )
    assert "without a number" in proctor("report", JOBS / job).out


def test_several_runs_are_one_report(proctor: Proctor) -> None:
    ran = proctor("report", SCRIPTED, JOBS / "03-binary-oracle-k5", "--no-behaviour")
    assert ran.out.startswith("Report: 04-binary-scripted-k5, 03-binary-oracle-k5\n")
    assert "03-binary-oracle-k5: oracle" in ran.out
    assert "behaviour, because traces were not read" in ran.out


def test_the_name_of_the_file_tells_its_face(proctor: Proctor, tmp_path: Path) -> None:
    beginnings = {
        "r.html": "<!doctype html>",
        "r.md": "# Report: ",
        "r.json": "{",
        "r.txt": "Report",
    }
    for name, beginning in beginnings.items():
        assert proctor("report", SCRIPTED, "-o", tmp_path / name).code == 0
        assert (tmp_path / name).read_text().startswith(beginning)
    ran = proctor("report", SCRIPTED, "-o", tmp_path / "r.txt", "--format", "html")
    assert ran.err.endswith("r.txt: the report, as html\n")
    assert (tmp_path / "r.txt").read_bytes() == (tmp_path / "r.html").read_bytes()


def test_html_needs_nothing_beside_itself_and_names_no_place(
    proctor: Proctor, tmp_path: Path
) -> None:
    assert proctor("report", SCRIPTED.resolve(), "-o", tmp_path / "r.html").code == 0
    page = (tmp_path / "r.html").read_text()
    assert "<svg" in page
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', page)
    assert str(SCRIPTED.resolve().parent) not in page


def test_a_report_of_a_ledger_says_what_it_rests_on(proctor: Proctor) -> None:
    assert proctor("import", "harbor", SCRIPTED).code == 0
    ran = proctor("report", SCRIPTED.name)
    assert ran.code == 0
    assert "Diagnostic: 15 trials with partial records" in ran.out
    assert re.search(r"^root hash +[0-9a-f]{64}$", ran.out, re.MULTILINE)
    assert re.search(r"^position +16 entries of the log$", ran.out, re.MULTILINE)
    assert "Checkpoint" in ran.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Missing argument 'RUN...'"),
        (("nowhere",), "nowhere: there is no such directory, and no ledger"),
        ((SCRIPTED, "-o", SCRIPTED / "r.html"), "proctor does not write into its input"),
        ((SCRIPTED, "-o", "/nowhere/r.html"), "/nowhere/r.html: cannot be written: "),
        ((SCRIPTED, "--site", "x", "-o", "y"), "--site cannot be combined with -o"),
        ((SCRIPTED, "--json", "--format", "html"), "--json cannot be combined with --format"),
    ],
)
def test_what_cannot_be_reported_is_refused_with_a_sentence(
    proctor: Proctor, arguments: tuple[object, ...], sentence: str
) -> None:
    ran = proctor("report", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err


# Sites


def tree(place: Path) -> dict[str, bytes]:
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def test_a_site_has_a_page_for_every_trial_and_links_that_lead_somewhere(
    proctor: Proctor, tmp_path: Path
) -> None:
    ran = proctor("report", SCRIPTED.resolve(), "--site", tmp_path / "site")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("index.html: the report, and 15 pages of trials\n")
    pages = {name: data.decode() for name, data in tree(tmp_path / "site").items()}
    assert len(pages) == 1 + 15 + 15 + 1
    for name, page in pages.items():
        assert str(SCRIPTED.resolve().parent) not in page
        for link in re.findall(r'href="(?!#)([^"]*)"', page):
            assert ((tmp_path / "site" / name).parent / link).resolve().is_file()
    one = pages["trials/04-binary-scripted-k5/oracle-wrong__eEWHTg5.html"]
    assert "verifier/reward.txt" in one
    assert "f670348acce4f11a2db13cb95b05c84dfa85f6b0a27c04e402256312e455289e" in one
    assert 'id="step-1"' in pages["traces/04-binary-scripted-k5/oracle-wrong__eEWHTg5.html"]


def test_a_trial_that_is_in_two_runs_gets_no_site(proctor: Proctor, tmp_path: Path) -> None:
    ran = proctor("report", SCRIPTED, SCRIPTED, "--site", tmp_path / "site")
    assert ran.code == 2
    assert "this trial is in two of the runs" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_the_same_runs_give_the_same_bytes(proctor: Proctor, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert proctor("report", SCRIPTED, "--site", tmp_path / name).code == 0
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_a_site_replaces_itself_and_nothing_else(proctor: Proctor, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert proctor("report", SCRIPTED, "--site", site).code == 0
    assert proctor("report", ERRORS, "--site", site).code == 0
    assert (site / "trials" / ERRORS.name).is_dir()
    assert not (site / "trials" / SCRIPTED.name).exists()
    (site / "mine.txt").write_text("kept")
    before = tree(tmp_path)
    ran = proctor("report", SCRIPTED, "--site", site)
    assert (ran.code, ran.out) == (2, "")
    assert "'mine.txt' in it is not a site's" in ran.err
    assert tree(tmp_path) == before


def test_a_place_that_is_taken_or_was_read_is_refused(proctor: Proctor, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    (tmp_path / "file").write_text("x")
    before = tree(tmp_path)
    places = {"full": "not empty", "file": "a file is there"}
    for place, sentence in places.items():
        ran = proctor("report", SCRIPTED, "--site", tmp_path / place)
        assert ran.code == 2
        assert sentence in ran.err
    assert proctor("report", SCRIPTED, "--site", SCRIPTED / "x").code == 2
    assert tree(tmp_path) == before


def test_a_site_of_a_ledger_shows_the_sealed_evidence(proctor: Proctor, tmp_path: Path) -> None:
    assert proctor("import", "harbor", SCRIPTED).code == 0
    assert proctor("report", SCRIPTED.name, "--site", tmp_path / "site", "--json").code == 0
    pages = list((tmp_path / "site" / "trials").rglob("*.html"))
    assert len(pages) == 15
    assert "Leaf hash" in pages[0].read_text()
