"""Commands on a ledger that its address names: what runs and reads, and what an owner does."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from proctor.ledger.keeping import JobFiles
from proctor.ledger.reader import WAITING
from proctor.ledger.sealing import seal
from proctor.ledger.verification.verify import verify_ledger
from tests.cli.programs import Ran
from tests.cli.test_view import viewing
from tests.faults.site import wait_until
from tests.ledger.ledgers import record_bytes
from tests.serve.agents import Second
from tests.serve.commands import at, owner_of
from tests.serve.servers import Machine, ServedLedger, serving, submission_of

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent.parent
TASKS = ROOT / "examples" / "tasks"
IMPORTED = ROOT / "tests" / "data" / "harbor" / "jobs" / "13-single-task-adhoc"
NULL = ("-p", TASKS, "-e", "null", "-q")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLedger]:
    """A server over TLS from which everybody may read."""
    with serving(tmp_path_factory.mktemp("addresses"), "--public") as found:
        yield found


@pytest.fixture(scope="module")
def node(served: ServedLedger) -> Machine:
    """A machine that ran two jobs of four trials: night passes, day fails."""
    machine = served.machine()
    for name, reward in (("night", 1), ("day", 0)):
        ran = run(machine, name, "-k", 2, "--ek", f"reward={reward}", "--ledger", served.url)
        assert (ran.code, f"ledger: {served.url}: 4 sealed\n" in ran.out) == (0, True), ran
    return machine


def run(machine: Machine, name: str, *words: object, agent: str = "nop") -> Ran:
    """Run a job of small trials on a machine."""
    place = ("-o", machine.home / "jobs", "--job-name", name)
    return at(machine, "run", *NULL, "-a", agent, *place, *words)


def job_of(machine: Machine, name: str) -> Path:
    return machine.home / "jobs" / name


def copies_of(machine: Machine) -> Path:
    return machine.home / ".local/state/proctor/ledgers"


def ledger_of(job: Path) -> object:
    """The ledger that a job names in its own file."""
    return json.loads((job / "proctor.json").read_text())["ledger"]


def sealed_in(served: ServedLedger, job: Path) -> list[str]:
    """The sealed trials of a job's names, in order; also those that ran again."""
    trials = tuple(path.parent.name for path in job.glob("*/config.json"))
    return [name for name in served.trials() if name.startswith(trials)]


# Running and resuming


def test_a_run_seals_there_and_its_job_names_the_address_and_no_token(
    served: ServedLedger, node: Machine
) -> None:
    job = job_of(node, "night")
    assert len(sealed_in(served, job)) == 4
    assert ledger_of(job) == served.url
    assert node.token is not None
    for path in job.rglob("*"):
        assert not path.is_file() or node.token.encode() not in path.read_bytes()


def test_a_job_is_resumed_into_the_ledger_that_an_address_names(
    served: ServedLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = served.machine()
    assert run(machine, "unsealed", "--no-ledger").code == 0
    job = job_of(machine, "unsealed")
    monkeypatch.chdir(tmp_path)
    ran = at(machine, "resume", job, "--ledger", served.url, "-q")
    assert (ran.code, f"ledger: {served.url}: 2 sealed\n" in ran.out) == (0, True), ran
    assert (len(sealed_in(served, job)), ledger_of(job)) == (2, served.url)
    assert list(tmp_path.iterdir()) == []


def test_a_job_is_resumed_on_another_machine_and_without_a_copy(
    served: ServedLedger,
) -> None:
    begun, other = served.machine(), served.machine()
    assert run(begun, "moved", "--ledger", served.url).code == 0
    job = job_of(begun, "moved")
    shutil.rmtree(next(job.glob("tally__*")))
    ran = at(other, "resume", job, "-q")
    assert (ran.code, f"ledger: {served.url}: 1 sealed\n" in ran.out) == (0, True), ran
    # The trial that ran again is sealed beside the lost one.
    assert len(sealed_in(served, job)) == 3
    for machine in (other, begun):
        shutil.rmtree(copies_of(machine))
        ran = at(machine, "resume", job, "-q")
        assert (ran.code, f"ledger: {served.url}: 0 sealed\n" in ran.out) == (0, True), ran
        assert len(list(copies_of(machine).glob("*/remote.json"))) == 1
    assert verify_ledger(served.directory).is_sound


def test_a_dry_run_of_a_resume_does_not_contact_the_server(served: ServedLedger) -> None:
    machine, stranger = served.machine(), served.machine(has_token=False)
    assert run(machine, "previewed", "--ledger", served.url).code == 0
    job = job_of(machine, "previewed")
    # Nobody listens there.
    nowhere = "https://127.0.0.1:1"
    state = {**json.loads((job / "proctor.json").read_text()), "ledger": nowhere}
    (job / "proctor.json").write_text(json.dumps(state))
    for words in ((), ("--ledger", nowhere)):
        ran = at(stranger, "resume", job, *words, "--dry-run")
        assert ran.code == 0, ran
        assert not copies_of(stranger).exists()
    assert at(stranger, "resume", job, "-q").code == 2


def test_a_job_of_an_earlier_version_names_the_path_of_a_copy(served: ServedLedger) -> None:
    machine, other = served.machine(), served.machine()
    assert run(machine, "older", "--ledger", served.url).code == 0
    job = job_of(machine, "older")
    (copy,) = copies_of(machine).iterdir()
    older = {**json.loads((job / "proctor.json").read_text()), "ledger": str(copy)}
    # The server knows more than the copy.
    shutil.rmtree(next(job.glob("tally__*")))
    assert at(other, "resume", job, "-q").code == 0
    (job / "proctor.json").write_text(json.dumps(older))
    ran = at(machine, "resume", job, "-q")
    assert (ran.code, ledger_of(job)) == (0, served.url), ran
    (job / "proctor.json").write_text(json.dumps(older))
    shutil.rmtree(copy)
    ran = at(machine, "resume", job, "-q")
    assert (ran.code, "copy of another machine's ledger, which is gone" in ran.err) == (2, True)
    assert not copy.exists()
    assert len(sealed_in(served, job)) == 3


def test_a_run_goes_on_when_its_server_stops_and_its_trials_are_sent_later(
    served: ServedLedger,
) -> None:
    machine, stranger = served.machine(), served.machine()
    job = job_of(machine, "cut")

    def stop() -> None:
        wait_until(lambda: bool(sealed_in(served, job)))
        # A polite end would wait for the idle connection of this process.
        served.stop(signal.SIGKILL)

    Second.act, Second.begun = stop, 0
    words = ("-k", 2, "-n", 1, "--ledger", served.url)
    try:
        ran = run(machine, "cut", *words, agent="tests.serve.agents:Second")
        found = re.search(r"(\d) sealed, (\d) waiting for the server\n", ran.out)
        # The answer about the first one may have been cut off.
        assert found is not None, ran
        assert (ran.code, found.groups() in (("1", "3"), ("0", "4"))) == (0, True), ran
        assert f"proctor ledger seal --ledger {served.url}\n" in ran.out
        listed = at(machine, "ledger", "list", "--ledger", served.url)
        assert (listed.code, "the copy that was fetched last" in listed.err) == (0, True)
        assert "Errno" not in listed.err
        synced = at(machine, "ledger", "seal", "--ledger", served.url)
        assert (synced.code, f"{found[2]} entries are queued\n" in synced.err) == (2, True)
        refused = run(stranger, "never", "--ledger", served.url)
        assert (refused.code, "there is no copy of this ledger yet" in refused.err) == (2, True)
        assert not job_of(stranger, "never").exists()
    finally:
        served.stop()
        served.start()
    sent = [at(machine, "ledger", "seal", "--ledger", served.url, "--json") for _ in range(2)]
    assert [json.loads(each.out)["sent"] for each in sent] == [int(found[2]), 0]
    assert "0 sealed\n" in at(machine, "resume", job, "-q").out
    names = [path.parent.name for path in job.glob("*/config.json")]
    assert sorted(sealed_in(served, job)) == sorted(names)
    assert verify_ledger(served.directory).is_sound


@pytest.mark.parametrize("is_up", [True, False])
def test_a_trial_that_waits_and_is_run_again_is_sealed_beside_it(
    tmp_path: Path, is_up: bool
) -> None:
    with serving(tmp_path, is_encrypted=False) as served:
        machine = served.machine()
        job = job_of(machine, "again")
        machine.fetch()
        served.stop()
        words = ("-l", 1, "--ak", "fails=1", "--ledger", served.url)
        ran = run(machine, "again", *words, agent="tests.job.agents:Flaky")
        assert f"ledger: {served.url}: 0 sealed, 1 waiting for the server\n" in ran.out, ran
        if is_up:
            served.start()
        ran = at(machine, "resume", job, "--also", "ConnectionError", "-q")
        said = "1 sealed\n" if is_up else "0 sealed, 1 waiting for the server\n"
        assert (ran.code, said in ran.out) == (0, True), ran
        if not is_up:
            served.start()
            assert at(machine, "ledger", "seal", "--ledger", served.url).code == 0
        (name,) = (path.parent.name for path in job.glob("*/config.json"))
        for _ in range(2):
            assert served.trials() == [name, f"{name}.rerun-1"]
            assert at(machine, "resume", job, "-q").code == 0
        shown = at(machine, "show", name, "--ledger", served.url)
        assert "superseded" in shown.out, shown
        assert not list(copies_of(machine).glob("*/spool/refused"))
        assert verify_ledger(served.directory).is_sound


def test_what_waits_and_is_sealed_again_has_the_same_files_of_its_job(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/result.json").write_text("{}")
    with serving(tmp_path, is_encrypted=False) as served:
        machine = served.machine()
        machine.fetch()
        served.stop()
        files = JobFiles(root=tmp_path / "job", files=("result.json",))
        for _ in range(2):
            with machine.opened(is_fetched=False) as ledger:
                (sealed,) = seal(ledger, [replace(submission_of("of-a-job"), job_files=files)])
            assert (sealed.seq, sealed.status) == (WAITING, "waiting")
            # It goes on changing, which is no conflict.
            (tmp_path / "job/result.json").write_text('{"n": 2}')
        served.start()
        assert (
            json.loads(at(machine, "ledger", "seal", "--ledger", served.url, "--json").out)["sent"]
            == 1
        )
        assert served.trials() == ["of-a-job"]


# Everything else


def test_commands_that_read_take_the_address(served: ServedLedger, node: Machine) -> None:
    trial = next(job_of(node, "night").glob("greet__*")).name
    for words, said in (
        (("show", f"night/{trial}"), f"{trial}, sealed, of experiment night"),
        (("show", trial, "--evidence", "verifier/reward.txt"), "1"),
        (("compare", "night", "day", "--no-behaviour"), "proctor-examples/greet"),
        (("gate", "night", "--min-mean", "1"), "gate: met"),
        (("search", "Hello", "--experiment", "night"), f"night/{trial}"),
        (("search", "--update"), ""),
        (("board", "--dataset", "tasks", "--policy", "leaderboard"), "unpinned-image"),
        (("report", "night", "--no-behaviour"), "the ledger example.org/ledger"),
        (("ledger", "verify", "--fast"), f"{served.url}: sound"),
        (("ledger", "list", "--experiment", "night"), trial),
    ):
        ran = at(node, *words, "--ledger", served.url)
        assert (ran.code, said in ran.out) == (0, True), ran
    by_variable = replace(node, more={"PROCTOR_LEDGER": served.url})
    assert at(by_variable, "show", trial).out.startswith(f"{trial}, sealed, ")


def test_a_record_and_an_import_go_to_the_address(
    served: ServedLedger, node: Machine, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    record.write_bytes(record_bytes("by-command"))
    ran = at(node, "ledger", "seal", record, "--ledger", served.url)
    assert (ran.code, "by-command: sealed" in ran.out) == (0, True), ran
    for said in ("1 imported, 0 already there", "0 imported, 1 already there"):
        ran = at(node, "import", "harbor", IMPORTED, "--ledger", served.url)
        assert (ran.code, said in ran.out) == (0, True), ran


def test_the_viewer_shows_and_searches_it(served: ServedLedger, node: Machine) -> None:
    with node.using(), viewing(served.url, "--port", "0") as viewer:
        assert "night" in httpx.get(viewer.address).text
        found = httpx.get(f"{viewer.address}/search", params={"q": "Hello"}).text
        assert next(job_of(node, "night").glob("greet__*")).name in found


# The owner's commands


def test_tokens_are_made_listed_and_revoked(served: ServedLedger) -> None:
    here = owner_of(served)
    words = ("access", "add", "ci", "--write", "--experiment", "night")
    made = at(here, "serve", "--ledger", served.directory, *words)
    assert made.code == 0, made
    machine = replace(served.machine(has_token=False), token=made.out.strip())
    listed = at(here, "serve", "access", "list", "--ledger", served.directory)
    assert any(
        line.startswith("token ci: reads and writes night, made ")
        for line in listed.out.split("\n")
    )
    assert made.out.strip() not in listed.out
    refused = run(machine, "other", "-l", 1, "--ledger", served.url)
    assert (refused.code, "may not write to the experiment" in refused.out) == (3, True), refused
    again = at(here, "serve", "access", "add", "ci", "--ledger", served.directory)
    assert (again.code, "there is a token 'ci' already" in again.err) == (2, True)
    limited = at(here, "serve", "access", "add", "r", "--experiment", "e", "--ledger", here.home)
    assert (limited.code, "--experiment limits what is written" in limited.err) == (2, True)
    assert at(here, "serve", "access", "revoke", "ci", "--ledger", served.directory).code == 0
    refused = at(machine, "ledger", "list", "--ledger", served.url)
    assert (refused.code, "not valid" in refused.err) == (2, True)
    unknown = at(here, "serve", "access", "revoke", "ci", "--ledger", served.directory)
    assert (unknown.code, "there is no token or machine 'ci'" in unknown.err) == (2, True)


def test_a_machine_is_listed_and_revoked(served: ServedLedger) -> None:
    here, machine = owner_of(served), served.machine()
    assert run(machine, "before", "-l", 1, "--ledger", served.url).code == 0
    words = ("--ledger", served.directory, "--json")
    keys = json.loads(at(here, "serve", "access", "list", *words).out)
    key = str(machine.key.verifier)
    (name,) = [each["name"] for each in keys if each.get("key") == key]
    ran = at(here, "serve", "access", "revoke", key, "--ledger", served.directory)
    assert (ran.code, f"{name}: revoked, entry " in ran.out) == (0, True), ran
    refused = run(machine, "after", "-l", 1, "--ledger", served.url)
    assert (refused.code, "revoked" in refused.err) == (2, True), refused
    assert name not in at(here, "serve", "access", "list", *words).out
    again = at(here, "serve", "access", "revoke", name, "--ledger", served.directory)
    assert again.code == 2


def test_everybody_reads_a_public_ledger_and_nobody_writes_without_a_token(
    served: ServedLedger, node: Machine
) -> None:
    stranger = served.machine(has_token=False)
    listed = at(stranger, "ledger", "list", "--ledger", served.url)
    assert (listed.code, "night" in listed.out) == (0, True), listed
    refused = run(stranger, "unasked", "-l", 1, "--ledger", served.url)
    assert (refused.code, "PROCTOR_TOKEN" in refused.err) == (2, True), refused
