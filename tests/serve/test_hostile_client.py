"""Clients that mean harm: forged entries, foreign tokens, huge, slow and crooked requests."""

import base64
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import pytest
from backports import zstd

from proctor.digest import sha256_hex
from proctor.ledger.entry import (
    AnyEntry,
    BatchPlace,
    EvidenceFile,
    KeyEntry,
    MachineSignature,
    NoteEntry,
    Subject,
    SupersedeEntry,
    TrialEntry,
    TrialScore,
    WithholdEntry,
    encode_entry,
)
from proctor.ledger.machines import sign_entries
from proctor.ledger.remote.client import pack_artifact
from proctor.ledger.verification.verify import verify_ledger
from tests.ledger.ledgers import ORIGIN, record_bytes
from tests.serve.servers import EXPERIMENT, Machine, ServedLedger, serving

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLedger]:
    """A server that tests of this file share."""
    top = tmp_path_factory.mktemp("served")
    with serving(top, "--max-artifact", 64) as found:
        yield found


@dataclass(slots=True)
class Attacker:
    """A client with a token that may write, and its own idea of what to send."""

    machine: Machine
    http: httpx.Client
    name: str

    def submit(self, *entries: AnyEntry, is_signed: bool = True) -> httpx.Response:
        """Send entries."""
        if is_signed:
            entries = tuple(self.sign(*entries))
        return self.send([encode_entry(entry) for entry in entries])

    def send(self, lines: Sequence[bytes]) -> httpx.Response:
        """Send lines."""
        return self.http.post("/submit", content=b"\n".join(lines) + b"\n")

    def sign(self, *entries: AnyEntry, origin: str = ORIGIN, name: str = "") -> list[AnyEntry]:
        """Sign entries with this machine's key."""
        return sign_entries(entries, origin, name or self.name, self.machine.key)

    def upload(self, data: bytes) -> EvidenceFile:
        """Upload a file; returns it as evidence."""
        digest = sha256_hex(data)
        body = pack_artifact(digest, len(data), zstd.compress(data))
        assert self.http.post("/artifacts", content=body).status_code == 200
        return EvidenceFile(path="file", sha256=digest, size=len(data))


@pytest.fixture
def attacker(served: ServedLedger) -> Iterator[Attacker]:
    machine = served.machine()
    context = ssl.create_default_context(cafile=machine.certificate)
    headers = {"authorization": f"Bearer {machine.token}"}
    with httpx.Client(base_url=served.url, headers=headers, verify=context) as http:
        asked = {"name": machine.home.name, "key": str(machine.key.verifier)}
        name = http.post("/machines", json=asked).json()["name"]
        yield Attacker(machine, http, name)


@pytest.fixture(autouse=True)
def sound(served: ServedLedger) -> Iterator[None]:
    """Whatever a client does, the ledger stays sound."""
    yield
    assert verify_ledger(served.directory).damage == []


def trial(name: str, /, **changes: object) -> TrialEntry:
    """An entry as a client would submit it."""
    record = msgspec.json.format(record_bytes(name, **changes), indent=-1)
    return TrialEntry(at="", seq=0, record=msgspec.Raw(record))


def refused(answer: httpx.Response, words: str, status: int = 422) -> None:
    """A request was refused, with a sentence."""
    assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text


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
    refused(answer, "at most", 400)


def test_a_false_score_is_refused(attacker: Attacker) -> None:
    result = attacker.upload(b'{"trial_name": "t", "task_name": "t"}')
    file = msgspec.structs.replace(result, path="result.json")
    claimed = TrialScore(profile="harbor-0.13.1", certificate={"rewards": {"reward": 1}})
    entry = msgspec.structs.replace(trial("false-score"), evidence=(file,), score=claimed)
    assert attacker.submit(entry).status_code == 422
    without = msgspec.structs.replace(trial("false-score"), score=claimed)
    refused(attacker.submit(without), "no result.json")


def test_signatures_of_others_and_none_are_refused(
    attacker: Attacker, served: ServedLedger
) -> None:
    victim = served.machine()
    victim.seal("of-the-victim")
    entry = trial("forged")
    refused(attacker.submit(entry, is_signed=False), "not signed")
    asked = {"name": "any", "key": str(victim.key.verifier)}
    name = attacker.http.post("/machines", json=asked).json()["name"]
    (other,) = attacker.sign(entry, name=name)
    refused(attacker.send([encode_entry(other)]), "invalid signature")
    (unknown,) = attacker.sign(entry, name="nobody")
    refused(attacker.send([encode_entry(unknown)]), "not enrolled")
    (elsewhere,) = attacker.sign(entry, origin="example.org/another")
    refused(attacker.send([encode_entry(elsewhere)]), "invalid signature")
    (own,) = attacker.sign(entry)
    moved = msgspec.structs.replace(trial("moved"), signed=own.signed)
    refused(attacker.send([encode_entry(moved)]), "invalid signature")


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


def test_a_place_and_a_time_of_ones_own_are_refused(attacker: Attacker) -> None:
    for changes in ({"seq": 1}, {"at": "2020-01-01T00:00:00.000Z"}):
        refused(attacker.submit(msgspec.structs.replace(trial("placed"), **changes)), "position")
    line = encode_entry(*attacker.sign(trial("spaced")))
    refused(attacker.send([line.replace(b'"kind"', b' "kind"')]), "not as proctor writes")
    refused(attacker.send([b"not json"]), "not an entry")
    refused(attacker.http.post("/submit", content=b"\n" * 5000), "expected 1 to")


def test_too_much_is_not_read(attacker: Attacker) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(200):
            yield bytes(1 << 20)

    for path in ("/submit", "/artifacts", "/machines", "/artifacts/missing"):
        try:
            answer = attacker.http.post(path, content=endless())
        except httpx.TransportError:
            continue  # the server has hung up
        assert answer.status_code in (413, 422)
    digest = sha256_hex(b"huge")
    given = {"offset": 0, "size": 10 << 30, "total": 10 << 30}
    answer = attacker.http.put(f"/artifacts/sha256/{digest}", params=given, content=b"x")
    refused(answer, "at most", 400)


def test_parts_that_do_not_fit_are_refused(attacker: Attacker) -> None:
    digest = sha256_hex(b"parts")
    for offset, total in ((5, 10), (0, 0), (-1, 10)):
        given = {"offset": offset, "size": 5, "total": total}
        answer = attacker.http.put(f"/artifacts/sha256/{digest}", params=given, content=b"x")
        assert answer.status_code == 400
    answer = attacker.http.put(f"/artifacts/sha256/{digest}", params={"offset": "x"}, content=b"x")
    assert answer.status_code == 400


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


def test_guessing_tokens_is_slowed_down(served: ServedLedger) -> None:
    machine = served.machine()
    context = ssl.create_default_context(cafile=machine.certificate)
    with httpx.Client(base_url=served.url, verify=context) as http:
        codes = [
            http.get("/checkpoint", headers={"authorization": f"Bearer {n}"}).status_code
            for n in range(60)
        ]
        assert codes.count(429) > 10
        assert set(codes) == {401, 429}
        # Somebody with a token is not kept out by those without.
        good = {"authorization": f"Bearer {machine.token}"}
        assert http.get("/checkpoint", headers=good).status_code == 200


def test_a_slow_client_is_cut_off_and_keeps_nobody_waiting(
    served: ServedLedger, attacker: Attacker
) -> None:
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
    deadline = time.monotonic() + 60
    for each in slow:
        each.settimeout(max(deadline - time.monotonic(), 1))
        # Not a timeout: the server ends it.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            each.recv(100)
        each.close()


def test_tokens_are_stored_as_hashes_and_nowhere_else(
    served: ServedLedger, attacker: Attacker
) -> None:
    attacker.submit(trial("hashed"))
    token = (attacker.machine.token or "").encode()
    for top in (served.home, served.directory):
        for path in Path(top).rglob("*"):
            if path.is_file():
                assert token not in path.read_bytes(), path
