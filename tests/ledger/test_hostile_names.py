"""Names that a stranger chose never lead a write outside: each writer is handed hostile entries.

What reads a ledger refuses most of them before; here the writers stand alone.
"""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from proctor.errors import AlteredArtifactError, InputError, JobError, LedgerError, ProctorError
from proctor.exchange import atif
from proctor.exchange.exporting import Selection
from proctor.job.attempts import keep_attempt
from proctor.job.store import CONFIG, LOG, RUNNER, held_job
from proctor.ledger.entry import EvidenceFile, Source, TrialEntry
from proctor.ledger.exchange.aec_tree import write_tree
from proctor.ledger.exchange.harbor_jobs import trial_path, write_jobs
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.trial_index import TrialFilter
from proctor.report.policy.from_ledger import opened_experiment
from proctor.report.policy.submission import SealedIn
from proctor.trial.collect import is_behind_link
from proctor.web.export import write_site
from tests.ledger.ledgers import EXPERIMENT, make_ledger, record_bytes

IDS = [
    "../../x/site-packages",
    "..",
    ".",
    "",
    "/x",
    "a/b",
    "a/../../x",
    "x\0y",
    "a ",
    "\u0430b",
    "_job",
]
PATHS = ["../../../evil.pth", "/evil.pth", "a/../../evil.pth", "a//b", "./a", "a\0b", "", "a/.."]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenLedger]:
    """A trial of harbor's with two files, deep enough that `..` would stay in the test's place."""
    place = tmp_path_factory.mktemp("hostile") / "one" / "two"
    place.mkdir(parents=True)
    (place / "result.json").write_text("{}")
    (place / "note.txt").write_text("evil")
    with make_ledger(place) as made:
        evidence = ("note.txt", "result.json")
        given = Submission(record=record_bytes("a"), where="a", root=place, evidence=evidence)
        seal(made, [given])
        made.refresh()
        yield made


@pytest.fixture
def out(ledger: OpenLedger) -> Iterator[Path]:
    place = Path(ledger.where).parent / "out"
    yield place
    shutil.rmtree(place, ignore_errors=True)


def outside(out: Path) -> dict[str, bytes]:
    """Every file of the ledger's place but those in the output directory, and its index."""
    top = out.parents[2]
    files = (path for path in top.rglob("*") if path.is_file() and not path.is_relative_to(out))
    found = {str(path.relative_to(top)): path.read_bytes() for path in files}
    return {name: data for name, data in found.items() if "index.sqlite" not in name}


def hand_over(ledger: OpenLedger, entry: TrialEntry, patch: pytest.MonkeyPatch) -> None:
    """The ledger has this entry in the place of its only trial."""
    patch.setattr(ledger, "entry", lambda _seq: entry)


def entry_of(ledger: OpenLedger) -> TrialEntry:
    entry = ledger.entry(1)
    assert isinstance(entry, TrialEntry)
    return entry


def with_id(entry: TrialEntry, field: str, name: str) -> TrialEntry:
    record = msgspec.json.decode(entry.record)
    record[field] = name
    return msgspec.structs.replace(entry, record=msgspec.Raw(msgspec.json.encode(record)))


def with_paths(entry: TrialEntry, *paths: str) -> TrialEntry:
    """The same with more evidence: the bytes of its first file under these names."""
    first = entry.evidence[0]
    more = tuple(msgspec.structs.replace(first, path=path) for path in paths)
    return msgspec.structs.replace(entry, evidence=(*more, *entry.evidence))


@pytest.mark.parametrize("field", ["trial_id", "experiment_id"])
@pytest.mark.parametrize("name", IDS)
def test_an_id_that_is_no_name_makes_no_path(
    ledger: OpenLedger, out: Path, monkeypatch: pytest.MonkeyPatch, field: str, name: str
) -> None:
    entry, before = with_id(entry_of(ledger), field, name), outside(out)
    rows = list_trials(ledger, TrialFilter())
    hand_over(ledger, entry, monkeypatch)
    for write in (write_jobs, write_tree):
        with pytest.raises(ProctorError):
            write(ledger, [1], out)
    with pytest.raises(ProctorError):
        trial_path(entry)
    with (
        pytest.raises(ProctorError),
        opened_experiment(ledger, EXPERIMENT, SealedIn()),
    ):
        pass
    hostile = [msgspec.structs.replace(row, **{field: name}) for row in rows]
    with pytest.raises(ProctorError):
        atif.export_trials(Selection(ledger, hostile, is_all=True), out)
    assert outside(out) == before
    assert not out.exists()


@pytest.mark.parametrize("prefix", ["", "_job/", "_generation2/"])
@pytest.mark.parametrize("path", PATHS)
def test_evidence_that_is_no_plain_path_is_not_written(
    ledger: OpenLedger, out: Path, monkeypatch: pytest.MonkeyPatch, path: str, prefix: str
) -> None:
    before = outside(out)
    hand_over(ledger, with_paths(entry_of(ledger), f"{prefix}{path}"), monkeypatch)
    for write in (write_jobs, write_tree):
        with pytest.raises(ProctorError):
            write(ledger, [1], out)
    assert outside(out) == before


@pytest.mark.parametrize("name", ["../x/site-packages", "/x/y", "..", "a/b/../../..", "a\nb/c"])
def test_a_source_that_is_no_place_is_not_gone_back_to(
    ledger: OpenLedger, out: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = outside(out)
    source = Source(kind="harbor", name=name, seq=None, root=None)
    hand_over(ledger, msgspec.structs.replace(entry_of(ledger), source=source), monkeypatch)
    assert write_jobs(ledger, [1], out).written == 1
    assert (out / EXPERIMENT / "a" / "note.txt").read_text() == "evil"
    assert outside(out) == before


@pytest.mark.parametrize("at", ["{}", "{}/a", "{}/a/note.txt", "{}/_artifacts", "{}/a.json"])
def test_a_link_in_the_output_directory_is_not_followed(
    ledger: OpenLedger, out: Path, tmp_path: Path, at: str
) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    link = out / at.format(EXPERIMENT)
    link.parent.mkdir(parents=True)
    link.symlink_to(place / "new" if link.suffix else place)
    before = outside(out)
    refused = 0
    for write in (write_jobs, write_tree):
        try:
            write(ledger, [1], out)
        except LedgerError:
            refused += 1
    assert refused
    assert link.is_symlink()
    assert outside(out) == before
    assert not list(place.iterdir())


@pytest.mark.parametrize("paths", [("a", "a/b"), ("a/b", "a"), ("x" * 256,), ("result.json/x",)])
def test_names_that_collide_or_are_too_long_are_refused_in_a_sentence(
    ledger: OpenLedger, out: Path, monkeypatch: pytest.MonkeyPatch, paths: tuple[str, ...]
) -> None:
    before = outside(out)
    hand_over(ledger, with_paths(entry_of(ledger), *paths), monkeypatch)
    for write in (write_jobs, write_tree):
        with pytest.raises(LedgerError):
            write(ledger, [1], out)
    assert outside(out) == before
    assert not list(out.rglob(".*.tmp"))


def test_two_files_of_one_name_do_not_overwrite_each_other(
    ledger: OpenLedger, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = entry_of(ledger)
    one, other = entry.evidence
    twice = EvidenceFile(path=one.path, sha256=other.sha256, size=other.size)
    changed = msgspec.structs.replace(entry, evidence=(*entry.evidence, twice))
    hand_over(ledger, changed, monkeypatch)
    with pytest.raises(LedgerError, match="an export replaces nothing"):
        write_jobs(ledger, [1], out)
    assert (out / EXPERIMENT / "a" / "note.txt").read_text() == "evil"


def test_odd_names_inside_are_written_and_stay_inside(
    ledger: OpenLedger, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = (".bashrc", "x/site-packages/evil.pth", "x" * 255, "É", "É", "A", "a", "-rf", "~")
    before = outside(out)
    hand_over(ledger, with_paths(entry_of(ledger), *odd), monkeypatch)
    assert write_jobs(ledger, [1], out).written == 1
    assert {path.name for path in (out / EXPERIMENT / "a").iterdir()} >= {".bashrc", "A", "~"}
    assert outside(out) == before


@pytest.mark.parametrize("name", ["../../../../key", "/etc/passwd", "", "A" * 64])
def test_an_artifact_that_is_no_digest_has_no_path(ledger: OpenLedger, name: str) -> None:
    before = outside(Path(ledger.where).parent / "out")
    assert not ledger.artifacts.holds(name)
    load = partial(ledger.artifacts.load, size=1)
    for use in (ledger.artifacts.remove, load, ledger.artifacts.open):
        with pytest.raises(AlteredArtifactError, match="is not the SHA-256"):
            use(name)
    assert outside(Path(ledger.where).parent / "out") == before


@pytest.mark.parametrize("name", ["../evil.html", "/evil.html", "trials/../../evil.html", ""])
def test_a_page_of_a_site_is_below_the_site(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        write_site(tmp_path / "site", iter([("index.html", "x"), (name, "evil")]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [CONFIG, LOG, RUNNER, f".{CONFIG}.tmp", ".result.json.tmp"])
def test_a_stranger_s_job_that_is_resumed_writes_through_no_link(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").write_text("mine")
    job = tmp_path / "job"
    job.mkdir()
    (job / name).symlink_to(tmp_path / "mine")
    try:
        with held_job(job) as files:
            files.append_log("a line")
            files.write_config(b"{}")
            files.write_live_result("{}")
    except JobError:
        pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_attempts_that_are_a_link_are_not_moved_into(tmp_path: Path) -> None:
    trial, place = tmp_path / "trial", tmp_path / "elsewhere"
    for each in (trial, place):
        each.mkdir()
    (trial / "result.json").write_text("{}")
    (trial / "attempts").symlink_to(place)
    with pytest.raises(OSError, match="is a link, which is not followed"):
        keep_attempt(trial)
    assert not list(place.iterdir())


def test_an_artifact_of_a_trial_is_not_fetched_through_a_link_of_the_agent(tmp_path: Path) -> None:
    top = tmp_path / "artifacts"
    top.mkdir()
    (top / "out").symlink_to(tmp_path)
    assert is_behind_link(top, top / "out" / "x" / "y")
    assert is_behind_link(top, top / "out")
    assert not is_behind_link(top, top / "other" / "y")
    assert not is_behind_link(top, top)
    top.rename(tmp_path / "kept")
    (tmp_path / "link").symlink_to("kept")
    assert not is_behind_link(tmp_path / "link", tmp_path / "link" / "x")
