"""A ledger published to a directory, which a plain web server serves."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from proctor.errors import DamageError, ForkError, LedgerError
from proctor.ledger.entry import Withheld
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.publishing import DirectoryTarget, publish
from proctor.ledger.query import find_trial
from proctor.ledger.remote.mirror import connect
from proctor.ledger.withhold import Why, withhold_trial
from tests.publish.ledgers import Failing, KilledError, Owner, evidence_of, read_trials
from tests.publish.stores import running_web_server
from tests.serve.servers import EXPERIMENT, Machine

pytestmark = pytest.mark.process


@dataclass(slots=True)
class Site:
    """A directory that is served, and its readers."""

    top: Path
    url: str
    _n_readers: int = 0

    @property
    def target(self) -> DirectoryTarget:
        """Where to publish."""
        return DirectoryTarget(self.directory)

    @property
    def directory(self) -> Path:
        """What is published, below the directory that is served."""
        return self.top / "www/some/prefix"

    def reader(self) -> Machine:
        """A machine that has seen nothing yet."""
        self._n_readers += 1
        home = self.top / f"reader-{self._n_readers}"
        home.mkdir()
        return Machine(home, f"{self.url}/some/prefix", None)

    def files(self) -> dict[str, bytes]:
        """Everything that is published."""
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in self.directory.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "www").mkdir()
    with running_web_server(tmp_path / "www", tmp_path / "server") as url:
        yield Site(tmp_path, url)


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path / "owner").create("a", "b")


def test_any_web_server_will_do(site: Site, owner: Owner) -> None:
    owner.publish(site.target)
    reader = site.reader()
    assert read_trials(reader) == ["a", "b"]
    with reader.opened_for_reading() as ledger:
        file = ledger.entry(find_trial(ledger, "a").seq).evidence[0]  # type: ignore[union-attr]
        assert ledger.artifacts.load(file.sha256, file.size) == evidence_of("a").encode()
    owner.seal("c")
    owner.publish(site.target)
    assert read_trials(reader) == ["a", "b", "c"]
    board = reader.proctor("board", "--ledger", reader.url)
    assert EXPERIMENT in board.stdout or "1" in board.stdout


def test_a_web_server_is_asked_for_single_artifacts(site: Site, owner: Owner) -> None:
    owner.publish(site.target)
    there = next(path.name for path in (site.directory / "artifacts/sha256").iterdir())
    reader = site.reader()
    with reader.using():
        client = connect(reader.fetch(), reader.env).client
        assert client.missing([there, "0" * 64]) == {"0" * 64}
        client.close()


def test_nothing_is_sealed_into_what_is_published(site: Site, owner: Owner) -> None:
    owner.publish(site.target)
    with pytest.raises(LedgerError, match="published, read-only"):
        site.reader().seal("new")


def test_a_ledger_is_no_place_to_publish(owner: Owner, tmp_path: Path) -> None:
    other = Owner(tmp_path / "other").create("x")
    with pytest.raises(LedgerError, match="a ledger; publish to another"):
        owner.publish(DirectoryTarget(other.directory))


def test_a_kill_leaves_a_readable_older_state(site: Site, owner: Owner) -> None:
    owner.publish(site.target)
    owner.seal("c", "d")
    with owner.open() as ledger:
        withhold_trial(ledger, find_trial(ledger, "a"), Why("private", "ana"))
    old, new = ["a", "b"], ["a", "b", "c", "d"]
    before, seen, writes = site.files(), [], 0
    while True:
        target = Failing(site.target, writes)
        try:
            owner.publish(target)
        except KilledError:
            trials = read_trials(site.reader())
            assert trials in (old, new)
            seen.append(trials)
            _put_back(site, before)
            writes += 1
        else:
            break
    assert writes >= 8
    assert seen == sorted(seen, key=len)
    assert old in seen
    assert new in seen, "killed after the checkpoint, before what is withheld was removed"
    assert read_trials(site.reader()) == new


def _put_back(site: Site, files: dict[str, bytes]) -> None:
    for path in site.files().keys() - files.keys():
        (site.directory / path).unlink()
    for path, data in files.items():
        (site.directory / path).write_bytes(data)


def test_what_was_interrupted_is_completed(site: Site, owner: Owner) -> None:
    for writes in range(100):
        try:
            owner.publish(Failing(site.target, writes))
        except KilledError:
            continue
        break
    complete = site.files()
    target = DirectoryTarget(site.top / "at-once")
    owner.publish(target)
    assert complete == {
        str(path.relative_to(site.top / "at-once")): path.read_bytes()
        for path in (site.top / "at-once").rglob("*")
        if path.is_file()
    }


def test_what_is_withheld_is_published_no_longer(site: Site, owner: Owner) -> None:
    owner.publish(site.target)
    reader = site.reader()
    read_trials(reader)
    with owner.open() as ledger:
        row = find_trial(ledger, "a")
        secret = ledger.line(row.seq)
        digest = ledger.entry(row.seq).evidence[0].sha256  # type: ignore[union-attr]
        withhold_trial(ledger, row, Why("private", "ana"))
    done = owner.publish(site.target)
    assert done.removed == 1
    assert not [path for path, data in site.files().items() if secret in data or digest in path]
    read_trials(reader)
    with reader.opened_for_reading() as copy:
        assert isinstance(copy.entry(row.seq), Withheld)


def test_evidence_of_a_withheld_trial_is_not_published_if_it_came_back(
    site: Site, owner: Owner
) -> None:
    owner.publish(site.target)
    with owner.open() as ledger:
        row = find_trial(ledger, "a")
        withhold_trial(ledger, row, Why("private", "ana"))
        digest, _ = ledger.artifacts.put(io.BytesIO(evidence_of("a").encode()))
        ledger.artifacts.settle()
        assert ledger.artifacts.holds(digest)
    assert owner.publish(site.target).removed == 1
    assert owner.publish(site.target, is_all=True).removed == 0
    assert not [path for path in site.files() if digest in path]


def test_a_reader_meets_a_publication_half_way(
    site: Site, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.publish(site.target)
    reader = site.reader()
    with reader.using():
        remote = connect(_prepared(reader), reader.env)
        ask = remote.client.checkpoint
        answers = []

        def checkpoint() -> bytes:
            answers.append(ask())
            if len(answers) == 1:
                owner.seal("meanwhile")
                owner.publish(site.target)
            return answers[-1]

        monkeypatch.setattr(remote.client, "checkpoint", checkpoint)
        remote.begin()
        remote.close()
    assert "meanwhile" in read_trials(reader)


def _prepared(reader: Machine) -> Path:
    """The directory of a copy that is still empty."""
    elsewhere = Machine(reader.home, f"{reader.url}/", None)
    directory = elsewhere.fetch()
    for name in ("checkpoint", "entries/000000.jsonl"):
        (directory / name).unlink()
    return directory


def test_a_copy_of_what_is_published_can_be_published(site: Site, owner: Owner) -> None:
    owner.publish(site.target)
    first = site.files()
    with site.reader().opened_for_reading() as copy:
        again = DirectoryTarget(site.top / "www/again")
        assert publish(copy, again).files == len(first) - 2
    assert first == {path: (site.top / "www/again" / path).read_bytes() for path in first}


def test_an_outdated_tile_is_not_kept(site: Site, owner: Owner) -> None:
    owner.publish(site.target)
    before = set(site.files())
    owner.seal(*(f"more-{number}" for number in range(260)))
    owner.publish(site.target)
    gone = before - set(site.files())
    assert gone == {"tile/0/000.p/3", "tile/entries/000.p/3"}


@pytest.mark.parametrize("what", ["rewritten", "cut", "missing", "more", "tail"])
def test_a_bad_bundle_is_caught(site: Site, owner: Owner, what: str) -> None:
    owner.publish(site.target)
    path = site.directory / "tile/entries/000.p/3"
    data = path.read_bytes()
    match what:
        case "rewritten":
            path.write_bytes(data.replace(b'"b"', b'"x"'))
        case "cut":
            path.write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
        case "missing":
            path.unlink()
        case "more":
            path.write_bytes(data + data)
        case _:
            path.write_bytes(data + b"tail")
    with pytest.raises(DamageError):
        site.reader().fetch()


def test_a_history_that_goes_back_is_caught(site: Site, owner: Owner) -> None:
    owner.publish(site.target)
    older = site.files()
    reader = site.reader()
    owner.seal("c")
    owner.publish(site.target)
    read_trials(reader)
    _put_back(site, older)
    with pytest.raises(ForkError, match="cut off, or an older state"):
        reader.fetch()


def test_a_fork_is_caught(site: Site, owner: Owner, tmp_path: Path) -> None:
    fork = owner.copy(tmp_path / "fork")
    owner.seal("c")
    fork.seal("other")
    fork.seal("and-more")
    owner.publish(site.target)
    reader = site.reader()
    assert read_trials(reader) == ["a", "b", "c"]
    with pytest.raises(LedgerError, match="different histories"):
        fork.publish(site.target)
    _put_back(site, {})
    fork.publish(site.target)
    with pytest.raises(DamageError):
        reader.fetch()


def test_a_swapped_artifact_is_caught(site: Site, owner: Owner) -> None:
    owner.publish(site.target)
    with OpenLedger.open(owner.directory) as ledger:
        ledger.refresh()
        entry = ledger.entry(find_trial(ledger, "a").seq)
        files = entry.evidence  # type: ignore[union-attr]
    folder = site.directory / "artifacts/sha256"
    (folder / files[0].sha256).write_bytes((folder / files[1].sha256).read_bytes())
    reader = site.reader()
    with reader.opened_for_reading() as copy, pytest.raises(DamageError):
        copy.artifacts.load(files[0].sha256, files[0].size)
