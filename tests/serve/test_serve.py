"""A ledger that is served: machines read it, verify it and submit to it."""

import json
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import pytest

from proctor.errors import ConflictError, LedgerError, NotSealedError
from proctor.ledger.claims.claim import ClaimOptions, make_claim
from proctor.ledger.claims.document import render_document
from proctor.ledger.claims.trials import Scope
from proctor.ledger.entry import MachineEntry, TrialEntry
from proctor.ledger.keys import load_key, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.review import append_note
from proctor.ledger.sealing import seal
from proctor.ledger.submission import submit_trial
from proctor.ledger.verification.verify import verify_ledger
from proctor.ledger.withhold import Why, withhold_trial
from proctor.rerun.from_claim import load_claim_trials
from proctor.serve.tokens import Tokens, serve_directory
from proctor.serve.writer import revoke
from tests.ledger.ledgers import ORIGIN, record_bytes
from tests.serve.commands import at, owner_of
from tests.serve.servers import EXPERIMENT, ServedLedger, make_certificate, serving, submission_of

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLedger]:
    """A server over TLS that tests of this file share."""
    with serving(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """Files of a trial, one of them too large for a bulk upload."""
    made = tmp_path / "evidence"
    made.mkdir()
    (made / "small.txt").write_text("small\n")
    # Hardly compressible: hex digits of a simple generator.
    state, parts = 1, []
    for _ in range(700_000):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        parts.append(f"{state >> 32:08x}")
    (made / "large.txt").write_text("".join(parts))
    return made


def test_a_machine_seals_over_tls_and_everybody_can_check_it(
    shared: ServedLedger, evidence: Path
) -> None:
    machine, reader = shared.machine(), shared.machine(may_write=False)
    (sealed,) = machine.seal("over-tls", evidence=evidence)
    assert sealed.status == "sealed"
    assert "over-tls" in shared.trials()
    assert verify_ledger(shared.directory).damage == []
    with reader.opened() as copy:
        entry = copy.entry(sealed.seq)
        assert isinstance(entry, TrialEntry)
        assert bytes(entry.record) == msgspec.json.format(record_bytes("over-tls"), indent=-1)
        assert entry.signed is not msgspec.UNSET
        named = {file.path: file for file in entry.evidence}
        large = copy.artifacts.load(named["large.txt"].sha256, named["large.txt"].size)
        assert large == (evidence / "large.txt").read_bytes()
    with reader.using():
        assert verify_ledger(reader.fetch()).is_sound


def test_real_trials_are_taken_with_the_scores_that_their_files_give(shared: ServedLedger) -> None:
    jobs = Path(__file__).parents[1] / "data/ledgers/every-kind/jobs"
    trials = [path.parent for path in sorted(jobs.glob("*/*/record.json"))]
    with shared.machine().opened() as ledger:
        sealed = seal(ledger, [submit_trial(each) for each in trials])
        assert [each.is_new for each in sealed] == [True] * len(trials)
    with OpenLedger.open(shared.directory) as ledger:
        ledger.refresh()
        found = {row.trial_id: row for row in list_trials(ledger)}
    rewards = [found[each.trial_id].reward for each in sealed]
    assert rewards == [float((each / "verifier/reward.txt").read_text()) for each in trials]


def test_what_is_sealed_again_is_sealed_once(shared: ServedLedger) -> None:
    machine, other = shared.machine(), shared.machine()
    first = machine.seal("twice")
    again = machine.seal("twice")
    elsewhere = other.seal("twice")
    assert [each.seq for each in first] == [each.seq for each in again]
    assert [each.is_new for each in (*again, *elsewhere)] == [False, False]
    assert shared.trials().count("twice") == 1


def test_other_bytes_under_the_same_name_are_refused(shared: ServedLedger) -> None:
    machine, other = shared.machine(), shared.machine()
    machine.seal("disputed")
    changed = record_bytes("disputed", **{"evaluation.reward": 0.0})
    with other.opened() as ledger, pytest.raises(ConflictError, match="disputed"):
        seal(ledger, [replace(submission_of("disputed"), record=changed)])


def test_a_server_that_is_down_gets_it_later_and_once(tmp_path: Path) -> None:
    with serving(tmp_path, is_encrypted=False) as served:
        machine = served.machine()
        machine.seal("before")
        served.stop()
        (waiting,) = machine.seal("meanwhile")
        (again,) = machine.seal("meanwhile")
        assert (waiting.status, again.status) == ("waiting", "waiting")
        with machine.opened(is_fetched=False) as ledger, pytest.raises(NotSealedError):
            append_note(ledger, "what the server would refuse does not wait", author="me")
        assert served.trials() == ["before"]
        served.start()
        done = at(machine, "ledger", "seal", "--ledger", served.url, "--json")
        assert json.loads(done.out)["sent"] == 1
        (after,) = machine.seal("after")
        assert after.is_new
        assert served.trials() == ["before", "meanwhile", "after"]
        assert verify_ledger(served.directory).is_sound


def test_a_machine_that_was_never_enrolled_can_wait_too(tmp_path: Path, evidence: Path) -> None:
    with serving(tmp_path, is_encrypted=False) as served:
        machine = served.machine()
        machine.fetch()
        served.stop()
        assert machine.seal("first", evidence=evidence)[0].status == "waiting"
        served.start()
        assert at(machine, "ledger", "seal", "--ledger", served.url).code == 0
        assert served.trials() == ["first"]
        assert verify_ledger(served.directory).is_sound


def test_a_key_of_two_machines_keeps_its_name_while_the_server_is_down(tmp_path: Path) -> None:
    with serving(tmp_path, is_encrypted=False) as served:
        first, second = served.machine(), served.machine()
        second.more["PROCTOR_KEY"] = first.more["PROCTOR_KEY"] = str(tmp_path / "key")
        make_key(tmp_path / "key", "example.org/ci")
        for number, machine in enumerate((first, second)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("socket.gethostname", lambda number=number: f"host{number}")
                machine.seal(f"before-{number}")
        # Another key in between.
        del second.more["PROCTOR_KEY"]
        second.seal("own-key")
        second.more["PROCTOR_KEY"] = str(tmp_path / "key")
        served.stop()
        assert second.seal("meanwhile")[0].status == "waiting"
        served.start()
        assert at(second, "ledger", "seal", "--ledger", served.url).code == 0
        assert served.trials()[-1] == "meanwhile"


def test_many_large_records_are_sent_in_parts(tmp_path: Path) -> None:
    with serving(tmp_path, is_encrypted=False) as served:
        machine = served.machine()
        names = [f"large-{number}" for number in range(12)]
        large = [
            replace(
                submission_of(name),
                record=record_bytes(name, **{"inputs.instruction": name + "x" * (5 << 20)}),
            )
            for name in names
        ]
        with machine.opened() as ledger:
            assert [each.is_new for each in seal(ledger, large)] == [True] * 12
        assert served.trials() == names


def test_a_long_log_of_signed_entries_is_sound(tmp_path: Path) -> None:
    # Longer than the pieces that verification reads.
    with serving(tmp_path, is_encrypted=False) as served:
        machine = served.machine()
        for number in range(4):
            machine.seal(*(f"trial-{number}-{each:03}" for each in range(200)))
        assert (
            sum(path.stat().st_size for path in (served.directory / "entries").iterdir()) > 1 << 20
        )
        assert verify_ledger(served.directory).damage == []


def test_a_token_writes_to_its_experiments_and_a_reader_to_none(shared: ServedLedger) -> None:
    allowed = shared.machine(experiments=(EXPERIMENT,))
    elsewhere, reader = shared.machine(experiments=("other",)), shared.machine(may_write=False)
    assert allowed.seal("in-scope")[0].is_new
    # As `run` opens it, before its first trial.
    reader.may_write = True
    for machine, message in ((elsewhere, "may not write to the experiment"), (reader, "only read")):
        with pytest.raises(LedgerError, match=message):
            machine.seal("out-of-scope")
    assert "out-of-scope" not in shared.trials()


def test_without_a_valid_token_nothing_is_shown(shared: ServedLedger) -> None:
    stranger = shared.machine(has_token=False)
    with pytest.raises(LedgerError, match="PROCTOR_TOKEN"):
        stranger.fetch()
    stranger = replace(stranger, token="a guess")  # noqa: S106
    with pytest.raises(LedgerError, match="not valid"):
        stranger.fetch()


def test_a_revoked_token_is_refused_by_the_running_server(shared: ServedLedger) -> None:
    machine = shared.machine()
    machine.seal("before-revocation")
    Tokens(serve_directory(ORIGIN, shared.env)).revoke(machine.home.name)
    with pytest.raises(LedgerError, match="not valid"):
        machine.seal("after-revocation")


def test_a_revoked_machine_is_refused_and_what_it_sealed_stays(tmp_path: Path) -> None:
    with serving(tmp_path, is_encrypted=False) as served:
        machine = served.machine()
        machine.seal("kept")
        with OpenLedger.open(served.directory, key=served.key) as ledger:
            ledger.refresh()
            (seq,) = ledger.index.places("machine")
            entry = ledger.entry(seq)
            assert isinstance(entry, MachineEntry)
            revoke(ledger, entry.name, "owner")
        with pytest.raises(LedgerError, match="revoked"):
            machine.seal("refused")
        assert served.trials() == ["kept"]
        assert verify_ledger(served.directory).is_sound


def test_a_withheld_trial_leaves_the_copies_too(tmp_path: Path, evidence: Path) -> None:
    with serving(tmp_path, is_encrypted=False) as served:
        machine, reader = served.machine(), served.machine(may_write=False)
        (sealed,) = machine.seal("secret", evidence=evidence)
        with reader.opened() as copy:
            entry = copy.entry(sealed.seq)
            assert isinstance(entry, TrialEntry)
            copy.artifacts.load(entry.evidence[1].sha256, entry.evidence[1].size)
        with OpenLedger.open(served.directory, key=served.key) as ledger:
            (row,) = list_trials(ledger)
            withhold_trial(ledger, row, Why("private", "owner"))
        directory = reader.fetch()
        assert b"g1-complete" not in b"".join(
            path.read_bytes() for path in (directory / "entries").iterdir()
        )
        assert not list((directory / "artifacts").rglob("*.zst"))
        with reader.using():
            assert verify_ledger(directory).damage == []


def test_the_interface_of_tiles_and_the_viewer(shared: ServedLedger) -> None:
    machine = shared.machine()
    machine.seal("tiled")
    headers = {"authorization": f"Bearer {machine.token}"}
    certificate = ssl.create_default_context(cafile=machine.certificate)
    with httpx.Client(base_url=shared.url, headers=headers, verify=certificate) as http:
        size = int(http.get("/checkpoint").text.split("\n")[1])
        hashes = http.get(f"/tile/0/000.p/{size}").content
        lines = http.get(f"/tile/entries/000.p/{size}").content.splitlines()
        assert len(hashes) == 32 * size
        assert len(lines) == size
        assert http.get(f"/tile/0/000.p/{size + 1}").status_code == 404
        assert http.get("/tile/0/../../checkpoint").status_code in (200, 404)
        page = http.get("/")
        assert page.status_code == 200
        assert EXPERIMENT in page.text
        assert http.post("/submit", content=b"").status_code == 422
    with httpx.Client(base_url=shared.url, verify=certificate) as http:
        assert http.get("/").status_code == 401
        assert http.get("/", auth=("anybody", machine.token or "")).status_code == 200


def test_a_claim_finds_its_evidence_from_a_copy_that_has_fetched_none(
    shared: ServedLedger, tmp_path: Path
) -> None:
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    (evidence / "answer.txt").write_text("42\n")
    shared.machine().seal("claimed", evidence=evidence)
    reader, path = shared.machine(may_write=False), tmp_path / "claim.json.zst"
    with reader.opened_for_reading() as copy:
        claim = make_claim(copy, ClaimOptions(scope=Scope(EXPERIMENT)), copy.checkpoint())
    path.write_bytes(render_document(claim))
    assert not (reader.fetch() / "artifacts").exists()
    with reader.using():
        found = load_claim_trials(str(path), reader.fetch())
        (file,) = found.entries["claimed"].evidence
        assert found.artifacts.load(file.sha256, file.size) == b"42\n"


def test_bad_addresses_get_a_sentence(shared: ServedLedger, tmp_path: Path) -> None:
    machine = shared.machine()
    for url, message in (
        ("http://198.51.100.1", "unencrypted"),
        ("https://127.0.0.1:1", "no copy of this ledger yet"),
        ("https://user@127.0.0.1", "expected https://"),
    ):
        done = at(machine, "ledger", "list", "--ledger", url)
        assert (done.code, message in done.err) == (2, True), done.err
    machine.certificate = None
    done = at(machine, "ledger", "list", "--ledger", shared.url)
    assert (done.code, "certificate" in done.err.lower()) == (2, True)


def test_sending_from_what_is_no_copy_gets_a_sentence(shared: ServedLedger, tmp_path: Path) -> None:
    machine = shared.machine()
    for place, message in (
        (tmp_path / "nowhere", "not a ledger: found nothing"),
        (shared.directory, "a ledger of this machine"),
    ):
        done = at(machine, "ledger", "seal", "--ledger", place)
        assert (done.code, message in done.err) == (2, True), done.err


def test_a_host_outside_needs_a_certificate(tmp_path: Path) -> None:
    served = ServedLedger(tmp_path)
    served.create()
    words = ("--ledger", served.directory, "--host", "198.51.100.1")
    done = at(owner_of(served), "serve", *words)
    assert (done.code, "unencrypted" in done.err) == (2, True)


def test_a_ledger_is_served_once(shared: ServedLedger) -> None:
    words = ("serve", "--ledger", shared.directory, "--port", 0)
    done = at(owner_of(shared), *words)
    assert (done.code, "served already" in done.err) == (2, True), done.err


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    served = ServedLedger(tmp_path)
    served.create()
    pair, other = make_certificate(tmp_path), tmp_path / "other"
    other.mkdir()
    stranger, none = make_certificate(other)[1], tmp_path / "none"
    none.write_text("not a certificate\n")
    for certificate, key, said in (
        (none, pair[1], f"{none}: not a certificate in PEM form"),
        (pair[1], pair[1], f"{pair[1]}: not a certificate in PEM form"),
        (pair[0], none, f"{none}: not the private key of {pair[0]}, in PEM form"),
        (pair[0], stranger, f"{stranger}: not the private key of {pair[0]}"),
        (pair[0], tmp_path / "nothing", f"{tmp_path / 'nothing'}: cannot be read"),
    ):
        words = ("--tls-certificate", certificate, "--tls-key", key, "--port", 0)
        ran = at(owner_of(served), "serve", "--ledger", served.directory, *words)
        assert (ran.code, ran.err.startswith(f"proctor: {said}")) == (2, True), ran


def test_the_key_of_the_ledger_stays_with_the_server(shared: ServedLedger) -> None:
    machine = shared.machine()
    machine.seal("own-key")
    assert str(machine.key.verifier) != str(shared.key.verifier)
    load_key(machine.home / ".config/proctor/keys/default")
    with pytest.raises(NotSealedError, match="takes trials"), machine.opened() as ledger:
        append_note(ledger, "a note", author="me")
