"""What every log store, artifact store and index must do; each has two implementations here.

A new implementation is added to `LOGS`, `ARTIFACTS` or `INDEXES` and has to pass.
"""

import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.errors import AlteredArtifactError, BusyError, DamageError, MissingArtifactError
from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.ledger.artifacts import ArtifactStore, FileArtifacts
from proctor.ledger.claims.claim import ClaimOptions, make_claim
from proctor.ledger.claims.proof import make_inclusion, proven_entry
from proctor.ledger.claims.trials import Scope
from proctor.ledger.entry import NoteEntry
from proctor.ledger.index import Index
from proctor.ledger.ledger import OpenLedger, begin_log
from proctor.ledger.log import FileLog, LogStore, Place, read_line, read_lines
from proctor.ledger.query import load_position
from proctor.ledger.review import append_review
from proctor.ledger.sealing import seal
from proctor.ledger.trial_index import NamePattern, TrialFilter, TrialIndex
from proctor.ledger.upkeep import catch_up
from proctor.ledger.verification.damage import DamageKind
from proctor.ledger.verification.steps import Check
from proctor.ledger.verification.verify import verify_log
from proctor.ledger.withhold import Why, withhold_evidence, withhold_trial
from proctor.report.board.making import make_board
from proctor.search.find import Page, find_hits
from proctor.search.index import SearchIndex
from proctor.search.query import parse_query
from proctor.search.upkeep import ask_index
from tests.ledger.ledgers import ORIGIN, find_key, make_rich_ledger
from tests.ledger.other_stores import MemoryIndex, SqliteArtifacts, SqliteLog

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
REWARDS = "05-rewards-oracle-k1"
LOGS: dict[str, Callable[[Path], LogStore]] = {
    "files": lambda place: FileLog(place, segment_size=1 << 16),
    "sqlite": lambda place: SqliteLog(place / "log.sqlite"),
}
ARTIFACTS: dict[str, Callable[[Path], ArtifactStore]] = {
    "files": FileArtifacts,
    "sqlite": lambda place: SqliteArtifacts(place / "artifacts.sqlite"),
}
INDEXES: dict[str, Callable[[Path], TrialIndex]] = {
    "sqlite": lambda place: Index.open(place / "index.sqlite", ORIGIN),
    "memory": lambda _: MemoryIndex(),
}


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    """An empty log."""
    return LOGS[request.param](tmp_path)


class TestLogStore:
    """A log store."""

    def test_lines_come_back_in_order_from_any_place(self, log: LogStore) -> None:
        lines = [f"{number} {'x' * (number * 37 % 900)}".encode() for number in range(400)]
        *places, end = log.append(Place(), lines)
        found = list(read_lines(log))
        assert [line.data for line in found] == lines
        assert [line.place for line in found] == places
        assert len(log.stamps()) > 1
        assert found[-1].end == end
        rest = list(read_lines(log, places[250]))
        assert [line.data for line in rest] == lines[250:]
        assert read_line(log, places[7], len(lines[7])) == lines[7]

    def test_an_empty_log_has_nothing(self, log: LogStore) -> None:
        assert list(read_lines(log)) == []
        assert log.stamps() == {}
        assert not log.has_checkpoint()
        with pytest.raises(FileNotFoundError):
            log.read_checkpoint()
        with pytest.raises(FileNotFoundError):
            log.read(Place(), 1)

    def test_a_range_ends_with_its_segment(self, log: LogStore) -> None:
        log.append(Place(), [b"abc", b"defg"])
        assert log.read(Place(0, 4), 3) == b"def"
        assert log.read(Place(0, 4), 300) == b"defg\n"
        assert log.read(Place(0, 900), 3) == b""
        with pytest.raises(DamageError, match="no line of 2 bytes at byte 0"):
            read_line(log, Place(), 2)

    def test_nothing_is_appended_where_the_log_does_not_end(self, log: LogStore) -> None:
        *_, end = log.append(Place(), [b"a", b"b"])
        for wrong in (Place(), Place(0, 2), Place(0, end.offset + 1)):
            with pytest.raises(FileExistsError):
                log.append(wrong, [b"c"])
        assert [line.data for line in read_lines(log)] == [b"a", b"b"]
        log.append(end, [b"c"])
        assert [line.data for line in read_lines(log)] == [b"a", b"b", b"c"]

    def test_what_is_set_aside_is_gone_from_the_log(self, log: LogStore) -> None:
        lines = [b"x" * 700 for _ in range(200)]
        places = log.append(Place(), lines)
        log.set_aside(places[30])
        assert len(list(read_lines(log))) == 30
        log.append(places[30], [b"next"])
        assert [line.data for line in read_lines(log)][-1] == b"next"

    def test_a_line_is_overwritten_in_place(self, log: LogStore) -> None:
        places = log.append(Place(), [b"one", b"two", b"six"])
        before = log.stamps()
        log.overwrite(places[1], b"ten")
        assert [line.data for line in read_lines(log)] == [b"one", b"ten", b"six"]
        assert log.stamps() != before

    def test_a_checkpoint_is_replaced_as_a_whole(self, log: LogStore) -> None:
        log.write_checkpoint(b"first\n", is_new=True)
        assert log.read_checkpoint() == b"first\n"
        with pytest.raises(FileExistsError):
            log.write_checkpoint(b"second\n", is_new=True)
        log.write_checkpoint(b"third, and longer\n")
        assert log.read_checkpoint() == b"third, and longer\n"

    def test_stamps_differ_once_lines_were_added(self, log: LogStore) -> None:
        *_, end = log.append(Place(), [b"a"])
        before = log.stamps()
        assert log.stamps() == before
        log.append(end, [b"b"])
        assert log.stamps() != before

    def test_there_is_one_writer_at_a_time(self, log: LogStore) -> None:
        entered, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with log.locked():
                entered.set()
                leave.wait(30)

        other = threading.Thread(target=hold)
        other.start()
        try:
            assert entered.wait(30)
            with pytest.raises(BusyError), log.locked(0.05):
                pass
        finally:
            leave.set()
            other.join()
        with log.locked(10):
            pass


@pytest.fixture(params=ARTIFACTS)
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """An empty store."""
    return ARTIFACTS[request.param](tmp_path)


class TestArtifactStore:
    """An artifact store."""

    @pytest.mark.parametrize("data", [b"", b"{}\n", b"line\n" * 2_000_000], ids=len)
    def test_what_was_put_and_settled_comes_back(
        self, artifacts: ArtifactStore, data: bytes
    ) -> None:
        digest, size = artifacts.put(io.BytesIO(data))
        assert (digest, size) == (sha256_hex(data), len(data))
        artifacts.settle()
        assert artifacts.holds(digest)
        assert artifacts.load(digest, size) == data
        assert artifacts.load_head(digest, 3) == data[:3]
        assert 0 < (artifacts.stored_size(digest) or 0) < max(len(data), 100)
        artifacts.check(digest, size)

    def test_what_was_not_settled_is_not_there(self, artifacts: ArtifactStore) -> None:
        digest, _ = artifacts.put(io.BytesIO(b"data"))
        artifacts.discard()
        artifacts.settle()
        assert not artifacts.holds(digest)
        assert artifacts.stored_size(digest) is None
        with pytest.raises(MissingArtifactError):
            artifacts.open(digest)

    def test_a_stream_is_put_from_where_it_is(self, artifacts: ArtifactStore) -> None:
        stream = io.BytesIO(b"head and rest")
        stream.seek(5)
        assert artifacts.put(stream) == (sha256_hex(b"and rest"), 8)

    def test_what_is_removed_is_gone_and_can_be_put_again(self, artifacts: ArtifactStore) -> None:
        for _ in range(2):
            digest, size = artifacts.put(io.BytesIO(b"data"))
            artifacts.settle()
            artifacts.check(digest, size)
            artifacts.remove(digest)
            artifacts.remove(digest)
            assert not artifacts.holds(digest)

    def test_other_sizes_than_were_sealed_are_damage(self, artifacts: ArtifactStore) -> None:
        digest, size = artifacts.put(io.BytesIO(b"data"))
        artifacts.settle()
        for wrong in (size - 1, size + 1):
            with pytest.raises(AlteredArtifactError):
                artifacts.check(digest, wrong)


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenLedger]:
    """A ledger with every kind of entry, superseded and withheld trials."""
    made = make_rich_ledger(tmp_path_factory.mktemp("rich"), size=200)
    with OpenLedger.open(made.directory) as ledger:
        ledger.refresh()
        yield ledger


@pytest.fixture(params=INDEXES)
def index(
    request: pytest.FixtureRequest, rich: OpenLedger, tmp_path: Path
) -> Iterator[tuple[TrialIndex, TrialIndex]]:
    """An index of that ledger, and the ledger's own."""
    made = INDEXES[request.param](tmp_path)
    with contextlib.closing(made):
        position = catch_up(made, rich.log, rich.checkpoint().tree)
        assert position == made.position()
        yield made, rich.index


type Both = tuple[TrialIndex, TrialIndex]
FILTERS = [
    TrialFilter(),
    TrialFilter(experiment="experiment-001", limit=7),
    TrialFilter(first=3),
    TrialFilter(trial="t3"),
    TrialFilter(trial_prefix="t3"),
    TrialFilter(status="superseded"),
    TrialFilter(status="withheld"),
    TrialFilter(lowest=0.5),
    TrialFilter(highest=0.5),
    TrialFilter(since="2001-01-01"),
    TrialFilter(since="2100-01-01"),
    TrialFilter(seqs=(1, 5, 500)),
    TrialFilter(from_seq=120),
    TrialFilter(experiments=("experiment-001", "x")),
    TrialFilter(experiments=()),
    TrialFilter(record_prefix="0"),
    TrialFilter(task="no such"),
    TrialFilter(names=(NamePattern("trial_id", "T1*"),)),
    TrialFilter(names=(NamePattern("trial_id", "t1*", is_not=True),), limit=5),
]


class TestTrialIndex:
    """An index, held against the one in SQLite."""

    @pytest.mark.parametrize("size", [1 << 62, 160, 3])
    def test_filters_select_the_same_trials(self, index: Both, size: int) -> None:
        made, known = index
        for wanted in FILTERS:
            found = list(made.trials(wanted, size=size))
            assert found == list(known.trials(wanted, size=size)), wanted

    def test_everything_else_is_the_same(self, index: Both) -> None:
        made, known = index
        size = known.size()
        assert made.size() == size
        assert made.entries(0, size) == known.entries(0, size)
        assert made.entry(4) == known.entry(4)
        assert made.entry(size) is None
        for level in range(3):
            assert made.hashes(level, 0, size - 3) == known.hashes(level, 0, size - 3)
        assert made.count_kinds() == known.count_kinds()
        assert made.latest_entries(9, before=150) == known.latest_entries(9, before=150)
        assert made.withheld_lines() == known.withheld_lines() != []
        assert made.supersessions() == known.supersessions() != {}
        assert made.supersessions(100) == known.supersessions(100)
        assert made.datasets() == known.datasets()
        assert made.experiments() == known.experiments() != []
        assert made.experiments("no such words") == []
        assert made.experiment_version("absent") is None
        name = known.experiments()[0][0]
        assert made.experiment_version(name) == known.experiment_version(name)
        for kind in known.count_kinds():
            assert made.places(kind, size=170) == known.places(kind, size=170)
            assert made.remarks(kind=kind) == known.remarks(kind=kind)
            asked = made.remarks(experiment=name, kind=kind, size=size - 1)
            assert asked == known.remarks(experiment=name, kind=kind, size=size - 1)
        for row in known.trials(TrialFilter(limit=40)):
            assert made.remarks(record=row.record) == known.remarks(record=row.record)
            ids = (row.experiment_id, row.trial_id)
            assert made.find_trial(*ids) == known.find_trial(*ids)
        assert made.find_trial("absent", "t") is None

    def test_a_batch_that_comes_too_late_is_left_alone(self, index: Both) -> None:
        made, _ = index
        before = made.position()
        assert not made.add([], before, after=before.frontier.size - 1)
        assert made.position() == before

    def test_it_begins_anew_once_it_is_erased(self, index: Both, rich: OpenLedger) -> None:
        made, known = index
        made.erase()
        assert (made.size(), list(made.trials(TrialFilter()))) == (0, [])
        catch_up(made, rich.log, rich.checkpoint().tree)
        assert list(made.trials(TrialFilter())) == list(known.trials(TrialFilter()))


def make_other_ledger(place: Path) -> OpenLedger:
    """A new ledger of which nothing is a file of ours."""
    log, key = SqliteLog(place / "log.sqlite"), find_key(place)
    begin_log(log, key, ORIGIN)
    return OpenLedger(log, SqliteArtifacts(place / "artifacts.sqlite"), MemoryIndex(), key)


class TestOtherLedger:
    """The main steps of the demo with a ledger in SQLite, held against one in a directory."""

    @pytest.fixture
    def both(self, tmp_path: Path) -> Iterator[tuple[OpenLedger, OpenLedger]]:
        """The same trials in both."""
        other = make_other_ledger(tmp_path)
        with OpenLedger.create(tmp_path / "ledger", find_key(tmp_path), ORIGIN) as usual:
            for ledger in (other, usual):
                for job in (REWARDS, "06-errors-oracle-k1"):
                    offers = find_trials(JOBS / job, JobOptions(dataset_id="fixtures@1")).offers
                    seal(ledger, [offer.submit() for offer in offers])
                ledger.refresh()
            yield other, usual

    def test_lists_boards_and_counts_are_the_same(
        self, both: tuple[OpenLedger, OpenLedger]
    ) -> None:
        rows = [list(each.index.trials(TrialFilter())) for each in both]
        assert rows[0] == rows[1] != []
        boards = [make_board(each, "fixtures@1") for each in both]
        numbers = [[(row.number, row.numbers, row.load_trials()) for row in b.rows] for b in boards]
        assert numbers[0] == numbers[1] != []

    def test_it_is_verified_proven_and_claimed(self, both: tuple[OpenLedger, OpenLedger]) -> None:
        ledger, _ = both
        found = verify_log(Check(log=ledger.log, artifacts=ledger.artifacts))
        assert (found.damage, found.size) == ([], ledger.refresh().tree.size)
        assert found.artifacts > 5
        row = next(ledger.index.trials(TrialFilter(first=1)))
        proof = make_inclusion(ledger, row.seq, ledger.checkpoint())
        assert proven_entry(proof, "the proof")[0].tree == ledger.checkpoint().tree
        claim = make_claim(
            ledger, ClaimOptions(scope=Scope(experiment=REWARDS)), ledger.checkpoint()
        )
        assert claim.counts.counted > 1

    def test_reviews_withholding_and_restoring_work(
        self, both: tuple[OpenLedger, OpenLedger], tmp_path: Path
    ) -> None:
        ledger, _ = both
        first, second, third, *_ = ledger.index.trials(TrialFilter(experiment=REWARDS))
        append_review(ledger, first, "pass", reviewer="ana", note="read it")
        why = Why("a key in it", "ana")
        withhold_trial(ledger, second, why)
        withhold_evidence(ledger, third, why)
        found = verify_log(Check(log=ledger.log, artifacts=ledger.artifacts))
        assert (found.damage, found.withheld) == ([], 1)
        statuses = {row.seq: (row.status, row.review) for row in load_position(ledger).trials}
        assert statuses[first.seq] == (first.status, "pass")
        assert statuses[second.seq] == ("withheld", None)

    def test_an_edited_line_is_found(self, both: tuple[OpenLedger, OpenLedger]) -> None:
        ledger, _ = both
        entry = ledger.index.entry(3)
        assert entry is not None
        line = ledger.line(3)
        ledger.log.overwrite(entry.place, line.replace(b"complete", b"complexe", 1))
        found = verify_log(Check(log=ledger.log, artifacts=ledger.artifacts))
        assert [each.kind for each in found.damage] == [DamageKind.EDITED]

    def test_it_is_searched(self, both: tuple[OpenLedger, OpenLedger]) -> None:
        def count(ledger: OpenLedger) -> int:
            def ask(index: SearchIndex) -> int:
                found = find_hits(ledger, index, parse_query("reward"), TrialFilter(), Page())
                return found.matches

            return ask_index(ledger, ask)

        other, usual = both
        assert count(other) == count(usual) > 0

    def test_a_torn_tail_is_set_aside_by_the_next_writer(
        self, both: tuple[OpenLedger, OpenLedger]
    ) -> None:
        ledger, _ = both
        end = list(read_lines(ledger.log))[-1].end
        ledger.log.append(end, [b"never signed"])
        with ledger.writing():
            (seq,) = ledger.append([NoteEntry(at="", seq=0, text="next", author="ana")])
        ledger.refresh()
        assert isinstance(ledger.entry(seq), NoteEntry)
        found = verify_log(Check(log=ledger.log, artifacts=ledger.artifacts))
        assert (found.damage, found.notes) == ([], [])
