"""`proctor import prime` as a program, against Prime's interface on loopback and from files."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.traced_trials import trace_sealed
from proctor.ledger.trial_index import TrialFilter
from proctor.traces.traced_trial import opened_traces
from tests.cli.programs import Proctor, Ran, command_line, environment, run_child
from tests.exchange.prime.samples import make_a, make_b, small
from tests.exchange.prime.server import (
    KEY,
    Prime,
    bare,
    refuses,
    says,
    serving,
)

AT_ONCE = {"retry_after": "0"}


@pytest.fixture(autouse=True)
def known_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody with a key, whose home holds nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PRIME_API_KEY", KEY)
    # A server's own address, see `arguments`.
    monkeypatch.setenv("PRIME_API_BASE_URL", "")


@pytest.fixture
def ledger() -> Path:
    """Where it is sealed."""
    return Path(os.environ["PROCTOR_LEDGER"])


def arguments(server: Prime, *more: str) -> tuple[str, ...]:
    os.environ["PRIME_API_BASE_URL"] = server.url
    return ("import", "prime", "ev1", "-e", "nightly", *more)


def trial_ids(ledger: Path) -> list[str]:
    with OpenLedger.open(ledger) as opened:
        return [row.trial_id for row in list_trials(opened, TrialFilter(experiment="nightly"))]


def interrupt(server: Prime, page: int, how: signal.Signals) -> Ran:
    """An import as a child that is sent a signal when it asks for a page."""
    child = subprocess.Popen(
        command_line(*arguments(server)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    server.before = lambda number: child.send_signal(how) if number == page else None
    out, err = child.communicate(timeout=60)
    server.before = lambda _: None
    return Ran(child.returncode, out, err)


def test_three_thousand_samples_come_in_through_faults_and_a_kill_once_each(
    proctor: Proctor, ledger: Path
) -> None:
    with serving([small(number) for number in range(3000)]) as server:
        assert interrupt(server, 13, signal.SIGKILL).code == -signal.SIGKILL
        before = len(trial_ids(ledger))
        assert 0 < before <= 1200
        server.faults = {
            0: [refuses(429, "slow down", **AT_ONCE)],
            7: [refuses(500, "x", **AT_ONCE), refuses(502, "x", **AT_ONCE)],
            20: [refuses(429, "slow down", **AT_ONCE)] * 4,
        }
        first = proctor(*arguments(server))
        assert first.code == 0
        assert first.out == (
            f"3,000 samples found: {3000 - before:,} imported, {before:,} already there, "
            "0 refused\n"
            "next: proctor trace summary nightly\n"
        )
        assert first.err.count("trying again") == 7
        second = proctor(*arguments(server))
        assert "3,000 samples found: 0 imported, 3,000 already there, 0 refused" in second.out
    ids = trial_ids(ledger)
    assert len(ids) == 3000
    assert set(ids) == {f"prime-ev1-s{number}" for number in range(3000)}


def test_after_ctrl_c_it_goes_on(proctor: Proctor, ledger: Path) -> None:
    with serving([small(number) for number in range(300)]) as server:
        stopped = interrupt(server, 3, signal.SIGINT)
        assert (stopped.code, stopped.out) == (130, "")
        assert stopped.err.endswith("proctor: interrupted\n")
        n_sealed = len(trial_ids(ledger))
        assert n_sealed in (100, 200)
        ran = proctor(*arguments(server))
        assert f"{300 - n_sealed} imported, {n_sealed} already there" in ran.out
    assert len(trial_ids(ledger)) == 300


def test_what_came_before_a_failure_is_sealed_and_the_same_command_goes_on(
    proctor: Proctor, ledger: Path
) -> None:
    with serving([small(number) for number in range(250)]) as server:
        server.faults[3] = [refuses(401, "expired")]
        failed = proctor(*arguments(server))
        assert (failed.code, failed.out) == (2, "")
        assert "HTTP 401: expired; may the key of PRIME_API_KEY read this?" in failed.err
        ran = proctor(*arguments(server))
        assert "50 imported, 200 already there" in ran.out
    assert len(trial_ids(ledger)) == 250


def test_a_bad_sample_is_named_and_the_others_come_in(proctor: Proctor, ledger: Path) -> None:
    samples = [small(1), small(2, reward="high"), "text", small(3), small(1, reward=0.75)]
    with serving(samples) as server:
        ran = proctor(*arguments(server))
    assert ran.code == 3
    lines = ran.out.splitlines()
    assert lines[0] == "5 samples found: 2 imported, 0 already there, 3 refused"
    assert lines[1:3] == [
        'refused: sample "s2": reward is "high"; expected a finite number or null',
        'refused: sample "sample-3": Expected `object`, got `str`',
    ]
    assert "trial prime-ev1-s1 of nightly is sealed already, with the record" in lines[3]
    assert trial_ids(ledger) == ["prime-ev1-s1", "prime-ev1-s3"]


def test_where_all_is_refused_no_ledger_is_made(proctor: Proctor, ledger: Path) -> None:
    with serving([small(1, reward="high")]) as server:
        ran = proctor(*arguments(server))
    assert ran.code == 2
    assert not ledger.exists()


def test_a_sample_that_changed_is_refused_and_what_is_sealed_stays(
    proctor: Proctor, ledger: Path
) -> None:
    with serving([small(1), small(2)]) as server:
        proctor(*arguments(server))
        server.samples[0] = small(1, reward=0.75)
        ran = proctor(*arguments(server, "--json"))
    assert ran.code == 3
    facts = json.loads(ran.out)
    assert (facts["found"], len(facts["imported"]), len(facts["already_there"])) == (2, 0, 1)
    assert [each["is_conflict"] for each in facts["refused"]] == [True]
    assert len(trial_ids(ledger)) == 2


def test_a_renamed_evaluation_does_not_make_its_samples_others(
    proctor: Proctor, ledger: Path
) -> None:
    with serving([small(1), small(2)]) as server:
        proctor(*arguments(server))
        server.evaluation["name"] = "Nightly, final"
        server.samples.append(small(3))
        ran = proctor(*arguments(server))
    assert ran.code == 0
    assert "3 samples found: 1 imported, 2 already there, 0 refused" in ran.out
    assert "note: 2 samples already there: Prime's metadata of the evaluation changed" in ran.out
    assert len(trial_ids(ledger)) == 3


def test_samples_that_prime_speaks_of_and_does_not_give_are_missed(proctor: Proctor) -> None:
    with serving([small(1), small(2)], bare, total_samples=5) as server:
        ran = proctor(*arguments(server))
    assert ran.code == 3
    assert "note: Prime says there are 5 samples and gave 2; import again once" in ran.out


def test_a_list_that_shifts_while_it_is_read_is_named_and_imported_again(
    proctor: Proctor, ledger: Path
) -> None:
    with serving([small(number) for number in range(150)]) as server:

        def shift(page: int) -> None:
            if page == 2 and len(server.samples) == 150:
                server.samples[:0] = [small(150), small(151)]

        server.before = shift
        ran = proctor(*arguments(server))
        assert ran.code == 3
        assert "note: Prime says there are 152 samples and gave 150" in ran.out
        again = proctor(*arguments(server))
    assert (again.code, "2 imported, 150 already there" in again.out) == (0, True)
    assert len(trial_ids(ledger)) == 152


def test_a_key_that_stands_in_a_sample_is_not_sealed(proctor: Proctor, ledger: Path) -> None:
    leaky = small(2, completion=[{"role": "assistant", "content": f"export K={KEY}"}])
    with serving([small(1), leaky]) as server:
        ran = proctor(*arguments(server))
    assert ran.code == 3
    assert "contains the value of PRIME_API_KEY" in ran.out
    assert KEY not in ran.out
    assert trial_ids(ledger) == ["prime-ev1-s1"]


def test_the_conversation_is_what_a_trial_is_looked_at_by(proctor: Proctor, ledger: Path) -> None:
    with serving([make_a("a"), make_b("b")]) as server:
        assert proctor(*arguments(server)).code == 0
    with OpenLedger.open(ledger) as opened:
        trials = list(trace_sealed(opened, TrialFilter(experiment="nightly")))
        for trial in trials:
            with opened_traces(trial) as traces:
                assert [found.name for found in traces] == ["conversation.jsonl"]
        entry = opened.entry(trials[0].seq or 0)
    assert (entry.source.kind, entry.source.name) == ("prime", "ev1")  # type: ignore[union-attr]
    assert len(trials) == 2


def test_aec_bench_finds_the_files_where_it_keeps_them(proctor: Proctor, tmp_path: Path) -> None:
    with serving([make_b("b")]) as server:
        proctor(*arguments(server))
    assert proctor("export", "--format", "aec-bench", "-o", tmp_path / "tree").code == 0
    experiment = tmp_path / "tree" / "nightly"
    record = json.loads((experiment / "prime-ev1-b.json").read_text())
    assert (record["evaluation"]["reward"], record["completeness"]) == (0.5, "partial")
    files = sorted(path.name for path in (experiment / "_artifacts" / "prime-ev1-b").iterdir())
    assert files == ["conversation.jsonl", "output.md", "prime_sample.json"]


def test_aec_benchs_name_is_the_same_command(proctor: Proctor, ledger: Path) -> None:
    with serving([small(1)]) as server:
        arguments(server)
        ran = proctor("import-prime-eval", "ev1")
    assert ran.code == 0
    assert ran.out.endswith("next: proctor trace summary prime-eval-ev1\n")
    assert "import-prime-eval" in proctor("import-prime-eval", "--help").out


def test_refusals_of_prime_are_sentences(proctor: Proctor, ledger: Path) -> None:
    with serving([small(1)]) as server:
        server.faults[0] = [
            refuses(401, "Invalid API key"),
            refuses(404, "x"),
            says(b"<html>"),
        ]
        for expected in (
            "HTTP 401: Invalid API key; may the key of PRIME_API_KEY read this?",
            "there is no evaluation 'ev1'",
            "not JSON: Expecting value: line 1 column 1 (char 0); it begins with '<html>'",
        ):
            ran = proctor(*arguments(server))
            assert (ran.code, ran.out) == (2, "")
            assert expected in ran.err
    assert not ledger.exists()


def test_without_a_key_nothing_is_asked(proctor: Proctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIME_API_KEY")
    ran = proctor("import", "prime", "ev1")
    assert (ran.code, ran.out) == (2, "")
    assert "proctor: no key for Prime: PRIME_API_KEY is not set" in ran.err


def test_an_evaluation_without_samples_is_said_to_have_none(proctor: Proctor) -> None:
    with serving([], status="RUNNING") as server:
        ran = proctor(*arguments(server))
    assert (ran.code, ran.err) == (
        2,
        "proctor: evaluation ev1 has no samples; its status is RUNNING\n",
    )


def test_an_experiment_that_is_no_name_is_refused(proctor: Proctor, ledger: Path) -> None:
    with serving([small(1)]) as server:
        arguments(server)
        ran = proctor("import", "prime", "ev1", "-e", "../x")
    assert ran.code == 2
    assert "--experiment is '../x'; expected" in ran.err
    assert not ledger.exists()


def test_what_is_no_kind_of_import_is_told_the_kinds(proctor: Proctor) -> None:
    ran = proctor("import", "nightly.tar.zst")
    assert ran.code == 2
    assert "'nightly.tar.zst' is not a kind of import; expected one of aec-bench, harbor" in ran.err


def test_httpx_is_loaded_by_those_alone_who_ask() -> None:
    ran = run_child("import", "--help", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert ran.code == 0
    assert "httpx" not in ran.err


@pytest.mark.soak
def test_killed_at_every_page_it_comes_in_once_each(proctor: Proctor, ledger: Path) -> None:
    with serving([small(number) for number in range(3000)]) as server:
        for page in range(1, 31):
            interrupt(server, page, signal.SIGKILL)
        ran = proctor(*arguments(server))
        assert "3,000 samples found" in ran.out
        assert ran.code == 0
    assert sorted(trial_ids(ledger)) == sorted(f"prime-ev1-s{number}" for number in range(3000))
    assert proctor("ledger", "verify").code == 0
