"""Evidence that the owner has withheld, and that a machine sends again."""

import io
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from proctor.digest import sha256_hex
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.entry import EvidenceFile, TrialEntry, encode_entry
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.machines import sign_entries
from proctor.ledger.place import open_reader
from proctor.ledger.publishing import DirectoryTarget, publish
from proctor.ledger.query import find_trial
from proctor.ledger.remote.client import PIECE, LedgerClient
from proctor.ledger.remote.connections import UnreachableError
from proctor.ledger.remote.mirror import Mirror
from proctor.ledger.sealing import seal
from proctor.ledger.verification.verify import verify_ledger
from proctor.ledger.withhold import Why, withhold_evidence, withhold_trial
from tests.ledger.ledgers import ORIGIN
from tests.serve.servers import Machine, ServedLedger, serving, submission_of, trial
from tests.serve.test_sending import drawn, packed

pytestmark = pytest.mark.process
# One that is sent with its trial, one in a bulk upload, one in parts.
SIZES = (1000, 300_000, PIECE + 1000)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLedger]:
    """A server that tests of this file share."""
    with serving(tmp_path_factory.mktemp("served"), is_encrypted=False) as found:
        yield found
        assert verify_ledger(found.directory).damage == []


@pytest.fixture
def machine(served: ServedLedger) -> Machine:
    return served.machine()


def keep(machine: Machine, name: str, *contents: bytes) -> Mirror:
    """Have a trial wait, in a process of its own."""
    mirror, files = machine.mirror(), []
    for number, data in enumerate(contents):
        digest, size = mirror.artifacts.put(io.BytesIO(data))
        files.append(EvidenceFile(path=f"file-{number}", sha256=digest, size=size))
    draft = msgspec.structs.replace(trial(name), evidence=tuple(files))
    with machine.using():
        signed = sign_entries([draft], ORIGIN, mirror._enrol(machine.key), machine.key)
        mirror._outbox.keep([draft], [encode_entry(each) for each in signed])
    return mirror


def send(machine: Machine, name: str, *contents: bytes) -> list[str]:
    """Send a trial that waited; returns why it was refused."""
    mirror = keep(machine, name, *contents)
    with machine.using():
        mirror.send_waiting()
    assert not mirror.spool
    return mirror.refused


def read(machine: Machine, name: str) -> None:
    """Read the evidence of a trial, which is then in the copy."""
    with machine.opened_for_reading() as ledger:
        entry = ledger.entry(find_trial(ledger, name).seq)
        assert isinstance(entry, TrialEntry)
        for file in entry.evidence:
            ledger.artifacts.load(file.sha256, file.size)


def is_copied(machine: Machine, data: bytes) -> bool:
    (copy,) = (machine.home / ".local/state/proctor/ledgers").iterdir()
    return FileArtifacts(copy).holds(sha256_hex(data))


def withhold(served: ServedLedger, name: str, *, is_evidence_only: bool = False) -> None:
    """What the owner does, on the server's machine."""
    with OpenLedger.open(served.directory, key=served.key) as ledger:
        ledger.refresh()
        act = withhold_evidence if is_evidence_only else withhold_trial
        act(ledger, find_trial(ledger, name), Why("a key in it", "owner"))


def is_stored(served: ServedLedger, data: bytes) -> bool:
    return FileArtifacts(served.directory).holds(sha256_hex(data))


def ask(served: ServedLedger, machine: Machine, data: bytes) -> httpx.Response:
    """Ask the server for evidence."""
    headers = {"authorization": f"Bearer {machine.token}"}
    return httpx.get(f"{served.url}/artifacts/sha256/{sha256_hex(data)}", headers=headers)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_evidence_only", [False, True], ids=["trial", "evidence"])
def test_a_trial_that_is_sent_again_brings_nothing_back(
    served: ServedLedger, machine: Machine, tmp_path: Path, size: int, is_evidence_only: bool
) -> None:
    name, data = f"again-{size}-{is_evidence_only}", drawn(size, 20 + is_evidence_only)
    assert send(machine, name, data) == []
    assert ask(served, machine, data).status_code == 200
    withhold(served, name, is_evidence_only=is_evidence_only)
    # The acknowledgement was lost: it still waits on the machine.
    assert send(machine, name, data) == []
    assert served.trials().count(name) == 1
    assert not is_stored(served, data)
    assert ask(served, machine, data).status_code == 404
    with open_reader(served.directory) as ledger:
        publish(ledger, DirectoryTarget(tmp_path / "site"))
    assert not list((tmp_path / "site").rglob(sha256_hex(data)))


def test_an_upload_alone_brings_nothing_back(served: ServedLedger, machine: Machine) -> None:
    data = drawn(1000, 22)
    assert send(machine, "uploaded", data) == []
    withhold(served, "uploaded", is_evidence_only=True)
    headers = {"authorization": f"Bearer {machine.token}"}
    answer = httpx.post(f"{served.url}/artifacts", content=packed(data), headers=headers)
    assert answer.json() == {"stored": 1}
    assert not is_stored(served, data)
    assert ask(served, machine, data).status_code == 404


@pytest.mark.parametrize("size", SIZES)
def test_another_trial_with_the_same_file_is_sealed(
    served: ServedLedger, machine: Machine, size: int
) -> None:
    data = drawn(size, 23)
    assert send(machine, f"first-{size}", data) == []
    withhold(served, f"first-{size}")
    assert send(machine, f"first-{size}", data) == []
    # Such as an empty file: what was withheld says nothing about this trial.
    assert send(machine, f"second-{size}", data, b"its own") == []
    assert f"second-{size}" in served.trials()
    assert is_stored(served, data)
    assert ask(served, machine, data).status_code == 200


@pytest.mark.parametrize("size", SIZES)
def test_a_process_sends_a_file_again_that_the_server_lost(
    served: ServedLedger, machine: Machine, tmp_path: Path, size: int
) -> None:
    (tmp_path / "file").write_bytes(drawn(size, 31))
    with machine.opened() as ledger:
        seal(ledger, [submission_of(f"lost-{size}", tmp_path)])
        withhold(served, f"lost-{size}")
        (sealed,) = seal(ledger, [submission_of(f"sent-again-{size}", tmp_path)])
    assert sealed.is_new
    assert is_stored(served, drawn(size, 31))


def test_caches_ask_again_for_evidence(served: ServedLedger, machine: Machine) -> None:
    data = drawn(1000, 24)
    assert send(machine, "cached", data) == []
    assert ask(served, machine, data).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("is_evidence_only", [False, True], ids=["trial", "evidence"])
def test_what_is_withheld_leaves_the_copies(
    served: ServedLedger, machine: Machine, is_evidence_only: bool
) -> None:
    name, data = f"left-{is_evidence_only}", drawn(1000, 25 + is_evidence_only)
    shared = drawn(1000, 27)
    assert send(machine, name, data, shared) == []
    assert send(machine, f"{name}-other", shared) == []
    read(machine, name)
    withhold(served, name, is_evidence_only=is_evidence_only)
    machine.fetch()
    assert not is_copied(machine, data)
    # Another trial names it.
    assert is_copied(machine, shared)


def test_an_interruption_leaves_nothing_that_is_withheld_for_ever(
    served: ServedLedger, machine: Machine
) -> None:
    data, asked = drawn(1000, 28), 0
    lines = LedgerClient.lines

    def break_off(client: LedgerClient, first: int, size: int) -> Iterator[bytes]:
        nonlocal asked
        asked += 1
        # First the new lines, then those that they withhold.
        if asked > 1:
            raise UnreachableError("no connection")
        return lines(client, first, size)

    assert send(machine, "interrupted", data) == []
    read(machine, "interrupted")
    withhold(served, "interrupted")
    for is_there in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if is_there:
                patch.setattr(LedgerClient, "lines", break_off)
            with machine.using(), open_reader(machine.fetch()) as copy:
                copy.refresh()
                entry = copy.entry(find_trial(copy, "interrupted").seq)
        assert isinstance(entry, TrialEntry) == is_there
        assert is_copied(machine, data) == is_there


def test_evidence_that_waits_stays_when_it_is_withheld_for_another_trial(
    served: ServedLedger, machine: Machine
) -> None:
    data = drawn(300_000, 29)
    assert send(machine, "sent", data) == []
    mirror = keep(machine, "waits", data)
    withhold(served, "sent")
    machine.fetch()
    with machine.using():
        assert mirror.send_waiting() == 1
    assert mirror.refused == []
    assert is_stored(served, data)
