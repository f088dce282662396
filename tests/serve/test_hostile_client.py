"""Clients that mean harm: forged entries, foreign tokens, huge, slow and crooked requests."""

import base64
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest
from backports import zstd

from proctor.digest import sha256_hex
from proctor.harbor.record import DID_NOT_END
from proctor.ledger.entry import (
    AnyEntry,
    BatchPlace,
    EvidenceFile,
    KeyEntry,
    MachineSignature,
    NoteEntry,
    PlanEntry,
    Source,
    Subject,
    SupersedeEntry,
    TrialEntry,
    TrialScore,
    WithholdEntry,
    encode_entry,
)
from proctor.ledger.keys import make_key
from proctor.ledger.machines import sign_enrolment
from proctor.ledger.place import open_reader
from proctor.ledger.remote.client import LedgerClient, pack_artifact
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.verification.verify import verify_ledger
from proctor.serve import app
from proctor.serve.tokens import Tokens, serve_directory
from tests.ledger.ledgers import ORIGIN
from tests.serve.attackers import (
    Attacker,
    attacking,
    audit_lines,
    bytes_below,
    machines_of,
    memory_of,
    refused,
)
from tests.serve.servers import EXPERIMENT, ServedLedger, serving, trial, wait_until

pytestmark = pytest.mark.process
# A trial with the reward 0.
FAILED = Path(__file__).parents[1] / "data/ledgers/every-kind/jobs/nightly/proof__gZWiesk"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLedger]:
    """A server that tests of this file share."""
    top = tmp_path_factory.mktemp("served")
    with serving(top, "--max-artifact", 64) as found:
        yield found


@pytest.fixture
def attacker(served: ServedLedger) -> Iterator[Attacker]:
    with attacking(served) as made:
        yield made


@pytest.fixture(autouse=True)
def sound(served: ServedLedger) -> Iterator[None]:
    """Whatever a client does, the ledger stays sound."""
    yield
    assert verify_ledger(served.directory).damage == []


def test_an_honest_entry_is_taken(attacker: Attacker) -> None:
    assert attacker.submit(trial("honest")).status_code == 200


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b", "", "x" * 300, ".hidden", "a/b"])
def test_ids_that_are_no_names_are_refused(attacker: Attacker, name: str) -> None:
    assert attacker.submit(trial(name)).status_code == 422
    assert attacker.submit(trial("ok", experiment_id=name)).status_code in (403, 422)


@pytest.mark.parametrize(
    "path", ["../escape", "/etc/passwd", "a/../../b", "_job/../x", "a\x00b", "a//b", "."]
)
def test_paths_of_evidence_that_leave_are_refused(attacker: Attacker, path: str) -> None:
    file = msgspec.structs.replace(attacker.upload(b"content"), path=path)
    refused(attacker.submit(msgspec.structs.replace(trial("paths"), evidence=(file,))), "evidence")


def test_evidence_that_was_not_uploaded_is_refused(attacker: Attacker) -> None:
    missing = EvidenceFile(path="file", sha256=sha256_hex(b"never sent"), size=10)
    refused(
        attacker.submit(msgspec.structs.replace(trial("missing"), evidence=(missing,))),
        "was not uploaded",
    )


def test_an_artifact_under_a_false_name_is_refused(attacker: Attacker) -> None:
    data = zstd.compress(b"something else")
    for digest, size in ((sha256_hex(b"never stored"), 14), (sha256_hex(b"something else"), 13)):
        answer = attacker.http.post("/artifacts", content=pack_artifact(digest, size, data))
        assert answer.status_code == 422
    for digest in ("../../../../tmp/x".ljust(64, "x"), "A" * 64):
        body = digest.encode() + b"%016x%016x" % (1, len(data)) + data
        refused(attacker.http.post("/artifacts", content=body), "does not begin", 400)


def test_a_bomb_is_not_unpacked(attacker: Attacker) -> None:
    data = zstd.compress(bytes(512 << 20))
    size = 1 << 10
    answer = attacker.http.post(
        "/artifacts", content=pack_artifact(sha256_hex(bytes(512 << 20)), size, data)
    )
    refused(answer, "more bytes than were sealed")
    answer = attacker.http.post(
        "/artifacts", content=pack_artifact(sha256_hex(bytes(512 << 20)), 512 << 20, data)
    )
    refused(answer, "at most")


def test_a_false_score_is_refused(attacker: Attacker) -> None:
    result = attacker.upload(b'{"trial_name": "t", "task_name": "t"}')
    file = msgspec.structs.replace(result, path="result.json")
    claimed = TrialScore(profile="harbor-0.13.1", certificate={"rewards": {"reward": 1}})
    entry = msgspec.structs.replace(trial("false-score"), evidence=(file,), score=claimed)
    assert attacker.submit(entry).status_code == 422
    without = msgspec.structs.replace(trial("false-score"), score=claimed)
    refused(attacker.submit(without), "no result.json")


@pytest.mark.parametrize(
    ("kind", "words"),
    [("harbor", "its files give"), ("aec-bench", "its files, 0.0"), (None, "its files give")],
)
def test_a_reward_that_the_files_do_not_give_is_refused_without_a_score_too(
    attacker: Attacker, kind: str | None, words: str
) -> None:
    evidence = tuple(
        msgspec.structs.replace(attacker.upload((FAILED / path).read_bytes()), path=path)
        for path in ("config.json", "result.json", "verifier/reward.txt")
    )
    source = Source(kind=kind, name="elsewhere") if kind else None
    # What a runner leaves that was killed; its record is not compared with the files.
    errors = [f"{DID_NOT_END}: it was in its agent phase"]
    entry = trial("by-record", **{"evaluation.validity.errors": errors})
    entry = msgspec.structs.replace(entry, evidence=evidence, source=source)
    refused(attacker.submit(entry), words)


def test_files_that_decide_a_score_are_bounded_together(attacker: Attacker) -> None:
    small = attacker.upload(b"1")
    paths = ["result.json", *(f"steps/{number}/verifier/reward.txt" for number in range(5000))]
    evidence = tuple(
        msgspec.structs.replace(small, path=path, size=16 << 20) for path in sorted(paths)
    )
    entry = msgspec.structs.replace(trial("many-rewards"), evidence=evidence)
    refused(attacker.submit(entry), "at most 134,217,728")


def test_what_has_no_result_is_the_records_own_word_and_says_so(
    attacker: Attacker, served: ServedLedger
) -> None:
    entry = trial("own-word")
    contradicting = msgspec.structs.replace(entry, reason_code="harbor_reward_missing")
    refused(attacker.submit(contradicting), "which is why there is none")
    source = Source(kind="inspect", name="log.eval")
    answer = attacker.submit(msgspec.structs.replace(entry, source=source))
    (placed,) = answer.json()["entries"]
    with open_reader(served.directory) as ledger:
        ledger.refresh()
        sealed = ledger.entry(placed["seq"])
        (row,) = ledger.index.trials(TrialFilter(trial="own-word"))
    # Policies refuse it as `no-certificate`; pages say that the reward is what the record states.
    assert isinstance(sealed, TrialEntry)
    assert sealed.score is None
    assert row.run_conditions is not None
    assert row.run_conditions.profile is None


def test_signatures_of_others_and_none_are_refused(
    attacker: Attacker, served: ServedLedger
) -> None:
    victim = served.machine()
    victim.seal("of-the-victim")
    entry = trial("forged")
    refused(attacker.submit(entry, is_signed=False), "not signed")
    refused(attacker.enrol(victim.key, "any"), "not signed with the key", 403)
    (name,) = (each for each, key in machines_of(served).items() if key == str(victim.key.verifier))
    (other,) = attacker.sign(entry, name=name)
    refused(attacker.send([encode_entry(other)]), "invalid signature")
    (unknown,) = attacker.sign(entry, name="nobody")
    refused(attacker.send([encode_entry(unknown)]), "not enrolled")
    (elsewhere,) = attacker.sign(entry, origin="example.org/another")
    refused(attacker.send([encode_entry(elsewhere)]), "invalid signature")
    (own,) = attacker.sign(entry)
    moved = msgspec.structs.replace(trial("moved"), signed=own.signed)
    refused(attacker.send([encode_entry(moved)]), "invalid signature")


def test_a_key_is_enrolled_only_by_who_has_it(
    attacker: Attacker, served: ServedLedger, tmp_path: Path
) -> None:
    before = machines_of(served)
    key = make_key(tmp_path / "key", "example.org/fresh")
    asked = {"name": "fresh", "key": str(key.verifier)}
    for signature in (
        "",
        "no signature",
        sign_enrolment(ORIGIN, "fresh", attacker.machine.key),
        sign_enrolment("example.org/another", "fresh", key),
        sign_enrolment(ORIGIN, "other", key),
    ):
        answer = attacker.http.post("/machines", json={**asked, "signature": signature})
        refused(answer, "not signed with the key", 403)
    refused(attacker.http.post("/machines", json={**asked, "key": "no key"}), "not a public", 400)
    assert machines_of(served) == before


def test_a_batch_is_signed_once_and_each_entry_of_it_can_be_checked_alone(
    attacker: Attacker, served: ServedLedger
) -> None:
    entries = attacker.sign(*(trial(f"batch-{number}") for number in range(5)))
    signatures = {entry.signed.signature for entry in entries if entry.signed}
    assert len(signatures) == 1
    for entry in (entries[3], entries[0]):
        assert attacker.send([encode_entry(entry)]).status_code == 200
    assert attacker.send([encode_entry(entry) for entry in entries]).status_code == 200
    assert [served.trials().count(f"batch-{number}") for number in range(5)] == [1] * 5


def test_an_entry_that_a_machine_did_not_sign_is_in_no_batch_of_its(attacker: Attacker) -> None:
    signed = attacker.sign(*(trial(f"forged-{number}") for number in range(5)))[2].signed
    assert signed is not msgspec.UNSET
    place = signed.batch
    assert place is not msgspec.UNSET
    added = msgspec.structs.replace(trial("forged-5"), signed=signed)
    refused(attacker.send([encode_entry(added)]), "invalid signature")
    for changes in (
        {"index": 3},
        {"index": 1 << 62},
        {"size": 6},
        {"size": 0},
        {"path": place.path[:-1]},
        {"path": (*place.path, place.path[0])},
        {"path": ("not base64!", *place.path[1:])},
        {"path": ("", *place.path[1:])},
        {"path": place.path * 2000},
    ):
        changed = msgspec.structs.replace(place, **changes)
        entry = msgspec.structs.replace(
            trial("forged-2"), signed=msgspec.structs.replace(signed, batch=changed)
        )
        refused(attacker.send([encode_entry(entry)]), "invalid signature")
    single = msgspec.structs.replace(signed, batch=msgspec.UNSET)
    entry = msgspec.structs.replace(trial("forged-2"), signed=single)
    refused(attacker.send([encode_entry(entry)]), "invalid signature")


def test_a_signature_of_nothing_is_not_one_of_an_entry_without_a_place(attacker: Attacker) -> None:
    signature = base64.b64encode(attacker.machine.key.sign(b"")).decode()
    for size, path in ((0, ()), (5, ()), (2, ("not base64!",))):
        place = BatchPlace(index=0, size=size, path=path)
        signed = MachineSignature(machine=attacker.name, signature=signature, batch=place)
        entry = msgspec.structs.replace(trial("unbound"), signed=signed)
        refused(attacker.send([encode_entry(entry)]), "invalid signature")


def test_a_submission_sent_again_changes_nothing(attacker: Attacker, served: ServedLedger) -> None:
    line = encode_entry(*attacker.sign(trial("replayed")))
    first = attacker.send([line]).json()["entries"]
    again = attacker.send([line]).json()["entries"]
    assert first[0]["is_new"]
    assert again == [{"seq": first[0]["seq"], "is_new": False}]
    assert served.trials().count("replayed") == 1


@pytest.mark.parametrize(
    "entry",
    [
        KeyEntry(at="", seq=0, format="proctor-ledger-1", origin=ORIGIN, key="k"),
        NoteEntry(at="", seq=0, text="t", author="a"),
        WithholdEntry(
            at="", seq=0, subject=None, entry=0, leaf="0" * 64, artifacts=(), reason="r", author="a"
        ),
    ],
    ids=lambda entry: entry.kind,
)
def test_entries_that_only_the_owner_makes_are_refused(attacker: Attacker, entry: AnyEntry) -> None:
    refused(attacker.submit(entry), "a server takes")


def test_a_trial_of_others_cannot_be_superseded_by_a_lie(attacker: Attacker) -> None:
    subject = Subject(experiment_id=EXPERIMENT, trial_id="nothing", record="0" * 64)
    entry = SupersedeEntry(
        at="", seq=0, subject=subject, by=subject, cause="other", reason="r", author="a"
    )
    refused(attacker.submit(entry), "not sealed")


def test_plans_and_supersessions_of_other_experiments_are_refused(served: ServedLedger) -> None:
    def subject(experiment: str) -> Subject:
        return Subject(experiment_id=experiment, trial_id="nothing", record="0" * 64)

    def supersede(old: str, new: str) -> SupersedeEntry:
        return SupersedeEntry(
            at="",
            seq=0,
            subject=subject(old),
            by=subject(new),
            cause="other",
            reason="r",
            author="a",
        )

    def plan(experiment: str) -> PlanEntry:
        return PlanEntry(
            at="", seq=0, experiment_id=experiment, plan=msgspec.Raw(b"{}"), author="a"
        )

    with attacking(served, experiments=("own",)) as attacker:
        for entry in (
            plan("other"),
            supersede("own", "other"),
            supersede("other", "own"),
            supersede("other", "other"),
        ):
            refused(attacker.submit(entry), "may not write to the experiment 'other'", 403)
        refused(attacker.submit(plan("own"), plan("other")), "may not write", 403)
        refused(attacker.submit(supersede("own", "own")), "not sealed")
        assert attacker.submit(plan("own")).status_code == 200
    with open_reader(served.directory) as ledger:
        ledger.refresh()
        (seq,) = ledger.index.places("plan")
        assert b'"experiment_id":"own"' in ledger.line(seq)


def test_a_token_that_reads_writes_nothing(attacker: Attacker, served: ServedLedger) -> None:
    reader = {"authorization": f"Bearer {served.machine(may_write=False).token}"}
    routes = [
        (method, route.path.replace("{sha256}", "0" * 64))
        for route in app._ROUTES
        for method in (route.methods or set()) - {"GET", "HEAD"}
    ]
    assert len(routes) == 5
    # The viewer's pages take reviews on the server's own machine.
    for method, path in [*routes, ("POST", f"/trials/{EXPERIMENT}/any/reviews")]:
        answer = attacker.http.request(method, path, headers=reader, content=b"{}")
        if path == "/artifacts/missing":
            # A question, not an upload.
            refused(answer, "not the expected JSON", 400)
        else:
            refused(answer, "may only read", 403)


def test_a_token_of_another_ledger_is_refused(attacker: Attacker, served: ServedLedger) -> None:
    others = Tokens(serve_directory("example.org/another", served.env))
    token = others.add("elsewhere", may_write=True, experiments=())
    with attacking(served, address="127.0.0.3") as found:
        for path in ("/checkpoint", "/"):
            answer = found.http.get(path, headers={"authorization": f"Bearer {token}"})
            refused(answer, "not valid", 401)


def test_a_place_and_a_time_of_ones_own_are_refused(attacker: Attacker) -> None:
    for changes in ({"seq": 1}, {"at": "2020-01-01T00:00:00.000Z"}):
        refused(attacker.submit(msgspec.structs.replace(trial("placed"), **changes)), "position")
    line = encode_entry(*attacker.sign(trial("spaced")))
    refused(attacker.send([line.replace(b'"kind"', b' "kind"')]), "not as proctor writes")
    refused(attacker.send([b"not json"]), "not an entry")
    refused(attacker.http.post("/submit", content=b"\n" * 5000), "expected 1 to")


def test_too_much_is_not_read(attacker: Attacker, served: ServedLedger) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(10 << 10):
            yield bytes(1 << 20)

    assert served.process is not None
    process = Path(f"/proc/{served.process.pid}")
    # Forget the peak that other tests have reached.
    (process / "clear_refs").write_text("5")
    memory, disk = memory_of(process, "VmRSS"), bytes_below(served.top)
    for path in ("/submit", "/artifacts", "/machines", "/artifacts/missing"):
        for headers in ({}, {"authorization": "Bearer none"}):
            try:
                answer = attacker.http.post(path, content=endless(), headers=headers)
            except httpx.TransportError:
                continue  # the server has hung up
            assert answer.status_code in (401, 413, 429)
    digest = sha256_hex(b"huge")
    for size, total in ((10 << 30, 10 << 30), (10 << 30, 10), (10, 10 << 30)):
        given = {"offset": 0, "size": size, "total": total}
        answer = attacker.http.put(
            f"/artifacts/sha256/{digest}", params=given, content=bytes(1 << 20)
        )
        assert answer.status_code in (400, 422)
    assert memory_of(process, "VmHWM") - memory < 128 << 20
    assert bytes_below(served.top) - disk < 1 << 20


def test_parts_that_do_not_fit_are_refused(attacker: Attacker) -> None:
    digest = sha256_hex(b"parts")
    for offset, total in ((10, 10), (0, 0)):
        given = {"offset": offset, "size": 5, "total": total}
        answer = attacker.http.put(f"/artifacts/sha256/{digest}", params=given, content=b"x")
        refused(answer, "a part from", 400)
    given = {"offset": 5, "size": 5, "total": 10}
    answer = attacker.http.put(f"/artifacts/sha256/{digest}", params=given, content=b"x")
    assert answer.json() == {"offset": 0}
    for number in ("", "x", "-1", "1_0", "9" * 400):
        path = f"/artifacts/sha256/{digest}"
        answer = attacker.http.put(f"{path}?offset=0&size=5&total={number}", content=b"x")
        refused(answer, "expected ?offset=N&size=N&total=N", 400)
        answer = attacker.http.get(f"{path}/upload?total={number}")
        refused(answer, "expected ?total=N", 400)


@pytest.mark.parametrize(
    "path",
    [
        "/artifacts/sha256/..%2f..%2fcheckpoint",
        "/artifacts/sha256/" + "a" * 63,
        "/artifacts/../tokens.json",
        "/tile/entries/000.p/0",
        "/tile/0/x",
        "/tile/64/000",
        "/tile/0/000/../../../../etc/passwd",
    ],
)
def test_paths_lead_nowhere_else(attacker: Attacker, path: str) -> None:
    answer = attacker.http.get(httpx.URL(path))
    assert answer.status_code in (400, 404)
    assert b"root:" not in answer.content
    assert b"sha256" not in answer.content or b"message" in answer.content


def test_slow_clients_keep_nobody_waiting(served: ServedLedger, attacker: Attacker) -> None:
    context = ssl.create_default_context(cafile=attacker.machine.certificate)
    slow = []
    for _ in range(20):
        raw = socket.create_connection(("127.0.0.1", served.port))
        wrapped = context.wrap_socket(raw, server_hostname="127.0.0.1")
        wrapped.sendall(b"POST /submit HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n")
        slow.append(wrapped)
    start = time.monotonic()
    assert attacker.submit(trial("not-kept-waiting")).status_code == 200
    assert time.monotonic() - start < 10
    for each in slow:
        each.close()


def test_a_client_that_sends_too_much_at_once_waits_and_goes_on(
    served: ServedLedger, attacker: Attacker
) -> None:
    machine = attacker.machine
    context = ssl.create_default_context(cafile=machine.certificate)
    held = []
    for _ in range(64):
        raw = socket.create_connection(("127.0.0.1", served.port))
        wrapped = context.wrap_socket(raw, server_hostname="127.0.0.1")
        head = f"POST /artifacts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {machine.token}\r\n"
        wrapped.sendall(head.encode() + b"content-length: 1000\r\n\r\nx")
        held.append(wrapped)
    # From another address, so that what is refused there is a line of its own.
    transport = httpx.HTTPTransport(verify=context, local_address="127.0.0.2")
    with httpx.Client(
        base_url=served.url, headers=attacker.http.headers, transport=transport
    ) as http:
        wait_until(lambda: http.post("/artifacts", content=b"").status_code == 429)
        answer = http.post("/artifacts", content=b"")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    data = b"sent after a while"
    packed = pack_artifact(sha256_hex(data), len(data), zstd.compress(data))
    with machine.using():
        client = LedgerClient(served.url, machine.token)
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(client.upload_small, packed)
            who = {"token": machine.home.name, "address": "127.0.0.1"}
            wait_until(lambda: bool(audit_lines(served, status=429, **who)))
            for each in held:
                each.close()
            sent.result()
        assert client.missing([sha256_hex(data)]) == set()
        client.close()


def test_who_writes_and_who_is_refused_is_noted(served: ServedLedger) -> None:
    reader = served.machine(may_write=False)
    with attacking(served, address="127.0.0.4") as attacker:
        attacker.submit(trial("noted"))
        refused(
            attacker.submit(trial("noted", **{"evaluation.reward": 0.0})), "sealed already", 409
        )
        attacker.http.get("/checkpoint")
        for _ in range(3):
            for token in (reader.token, "a guess"):
                bearer = {"authorization": f"Bearer {token}"}
                attacker.http.post("/submit?secret=x", headers=bearer, content=b"never stored")
    name = attacker.machine.home.name
    enrolled, sealed, conflict, forbidden, unknown = audit_lines(served, address="127.0.0.4")
    assert enrolled["path"] == "/machines"
    for line, status in ((sealed, 200), (conflict, 409)):
        assert (line["token"], line["status"]) == (name, status)
        assert (line["method"], line["path"]) == ("POST", "/submit")
        assert line["bytes"] > 1000
    assert (sealed["machine"], sealed["entries"], sealed["new"]) == (attacker.name, 1, 1)
    assert "sealed already" in conflict["error"]
    # The second and third are counted: see test_audit.py.
    assert (forbidden["token"], forbidden["status"]) == (reader.home.name, 403)
    assert (unknown["token"], unknown["status"]) == (None, 401)


def test_tokens_are_stored_as_hashes_and_nowhere_else(
    served: ServedLedger, attacker: Attacker
) -> None:
    attacker.submit(trial("hashed"))
    token = (attacker.machine.token or "").encode()
    for top in (served.home, served.directory):
        for path in Path(top).rglob("*"):
            if path.is_file():
                assert token not in path.read_bytes(), path
