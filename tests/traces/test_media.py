"""Media that entries name: pinned where they lie, or reported; never followed out of the root."""

import base64
import hashlib
import os
import re
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.digest import sha256_file
from proctor.traces import media
from proctor.traces.entry import Entry
from proctor.traces.media import Medium, collect_media
from tests.examples import examples
from tests.unprivileged import unprivileged

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
JPEG = b"\xff\xd8\xff\xe0" + bytes(30)


def named(*names: str, step: int = 1, line: int = 2) -> tuple[int, Entry]:
    return line, Entry("tool_result", step, media=list(names))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The artifacts of a trial, beside something that is none of its business."""
    (tmp_path / "secret.txt").write_text("secret")
    root = tmp_path / "artifacts"
    root.mkdir()
    return root


def refusal(root: Path, name: str) -> tuple[str, str]:
    report = collect_media([named(name, step=4, line=7)], str(root))
    assert report.files == []
    (found,) = report.missing
    assert found.line == 7
    assert found.message.startswith("step 4 names ")
    assert found.is_problem
    return found.code, found.message


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.png", "a.png"),
        ("frames/1.png", "frames/1.png"),
        ("./frames//1.png", "frames/1.png"),
        ("/workspace/frames/1.png", "frames/1.png"),
        ("/logs/artifacts/a.png", "a.png"),
        ("/workspace/kept/b.png", "workspace/kept/b.png"),
        ("/tmp/c.png", "tmp/c.png"),  # noqa: S108 - a path of the container
        ("link.png", "frames/1.png"),
        ("é 測.png", "é 測.png"),
    ],
)
def test_a_file_is_found_under_the_root_and_pinned(root: Path, name: str, path: str) -> None:
    for file in ("a.png", "frames/1.png", "workspace/kept/b.png", "tmp/c.png", "é 測.png"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(file.encode())
    (root / "link.png").symlink_to("frames/1.png")
    report = collect_media([named(name)], str(root))
    assert report.missing == []
    assert report.files == [
        Medium(name, path, sha256(path.encode()), len(path.encode()), line=2, step=1)
    ]


def test_a_name_is_reported_once_at_its_first_line(root: Path) -> None:
    (root / "a").write_bytes(b"x")
    entries = [named("a", "gone", line=2), named("gone", "a", line=3, step=2), named(line=4)]
    report = collect_media(entries, str(root))
    assert [(medium.name, medium.line) for medium in report.files] == [("a", 2)]
    assert [str(found) for found in report.missing] == [
        "line 2: step 1 names 'gone', which is not among the artifacts"
    ]


def test_entries_without_media_name_none(root: Path) -> None:
    report = collect_media([(1, Entry("user", 0)), named()], str(root))
    assert (report.files, report.missing) == ([], [])


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("gone.png", "media-missing", "which is not among the artifacts"),
        ("file/below", "media-missing", "which is not among the artifacts"),
        ("../secret.txt", "media-outside", "a path with .. in it, which is not followed"),
        ("d/../../secret.txt", "media-outside", "a path with .. in it"),
        ("/workspace/../../secret.txt", "media-outside", "a path with .. in it"),
        ("out.txt", "media-outside", "a link out of the artifacts, which is not followed"),
        ("parent/secret.txt", "media-outside", "a link out of the artifacts"),
        ("nowhere.txt", "media-outside", "a link out of the artifacts"),
        ("/workspace/out.txt", "media-outside", "a link out of the artifacts"),
        ("round", "media-unreadable", "cannot be read: Too many levels of symbolic links"),
        ("d", "media-not-a-file", "a directory; expected a file"),
        (".", "media-not-a-file", "a directory; expected a file"),
        ("pipe", "media-not-a-file", "a pipe; expected a file"),
        ("socket", "media-not-a-file", "a device or socket; expected a file"),
        ("", "media-bad-name", "which cannot be the name of a file"),
        (" \n", "media-bad-name", "which cannot be the name of a file"),
        ("a\0b", "media-bad-name", "which cannot be the name of a file"),
        ("x" * 301, "media-bad-name", "which cannot be the name of a file"),
        ("x." * 5000, "media-bad-name", "which cannot be the name of a file"),
        ("\ud800", "media-unreadable", "which cannot be read"),
        ("https://example.test/a.png", "media-elsewhere", "which is not fetched"),
        ("file:///etc/passwd", "media-elsewhere", "which is not fetched"),
        ("data:image/png;base64,%%%", "media-broken", "whose base64 is broken"),
    ],
)
def test_what_cannot_be_pinned_is_reported(root: Path, name: str, code: str, why: str) -> None:
    (root / "d").mkdir()
    (root / "file").write_bytes(b"")
    (root / "out.txt").symlink_to("../secret.txt")
    (root / "parent").symlink_to("..")
    (root / "nowhere.txt").symlink_to("/nowhere/at/all")
    (root / "round").symlink_to("round")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        found, message = refusal(root, name)
    assert found == code
    assert why in message
    assert len(message) < 600


def test_a_long_name_is_shown_by_its_beginning(root: Path) -> None:
    _, message = refusal(root, "." + "n" * 100_001)
    assert re.search(r"names '\.n{78}…', which", message)


def test_a_file_that_may_not_be_read_is_reported(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a").write_bytes(b"x")
    (root / "a").chmod(0)
    root.chmod(0o755)
    monkeypatch.chdir(root)
    with unprivileged():
        code, message = refusal(Path(), "a")
    assert (code, message) == (
        "media-unreadable",
        "step 4 names 'a', which cannot be read: Permission denied",
    )


def test_a_file_that_is_too_large_is_not_read(root: Path) -> None:
    with (root / "a").open("wb") as file:
        file.truncate(media.LARGEST + 1)
    code, message = refusal(root, "a")
    assert code == "media-too-large"
    assert "a file of 4,294,967,297 bytes; expected no more than 4,294,967,296" in message


def test_a_file_that_changes_while_it_is_read_is_not_pinned(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root / "a"
    file.write_bytes(b"x")

    def hash_and_write(path: Path) -> str:
        file.write_bytes(b"more")
        return sha256_file(path)

    monkeypatch.setattr(media, "sha256_file", hash_and_write)
    assert refusal(root, "a")[0] == "media-changed"


def test_a_file_is_hashed_once_however_many_names_it_has(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a").write_bytes(b"x")
    (root / "b").hardlink_to(root / "a")
    (root / "c").symlink_to("a")
    hashed: list[Path] = []

    def hash_and_count(path: Path) -> str:
        hashed.append(path)
        return sha256_file(path)

    monkeypatch.setattr(media, "sha256_file", hash_and_count)
    report = collect_media([named("a", "b", "c", "/workspace/a")], str(root))
    assert len(hashed) == 1
    assert {medium.sha256 for medium in report.files} == {sha256(b"x")}
    assert [medium.path for medium in report.files] == ["a", "b", "a", "a"]


def test_a_root_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone", "a.png")[0] == "media-missing"


def test_a_root_may_itself_be_a_link(root: Path, tmp_path: Path) -> None:
    (root / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to(root)
    report = collect_media([named("a")], str(tmp_path / "link"))
    assert [medium.path for medium in report.files] == ["a"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (f"data:image/png;base64,{base64.b64encode(PNG).decode()}", PNG),
        (f"DATA:;charset=x;BASE64,{base64.b64encode(PNG).decode()}", PNG),
        ("data:text/plain,a%20b", b"a b"),
        ("data:,", b""),
        (base64.b64encode(PNG).decode(), PNG),
        (base64.b64encode(JPEG).decode(), JPEG),
        (base64.b64encode(bytes(9000)).decode(), bytes(9000)),
    ],
)
def test_media_in_the_entry_itself_are_pinned_decoded(root: Path, name: str, data: bytes) -> None:
    report = collect_media([named(name)], str(root))
    assert report.missing == []
    (medium,) = report.files
    assert (medium.path, medium.sha256, medium.size) == (None, sha256(data), len(data))
    assert len(medium.name) <= 80
    assert name.startswith(medium.name.removesuffix("…"))


@pytest.mark.parametrize("name", ["/workspace/out1x", "frames12", "abcd" * 20, "iVBORw0K"])
def test_a_name_that_could_be_base64_stays_a_name(root: Path, name: str) -> None:
    assert refusal(root, name)[0] == "media-missing"
    (root / name.removeprefix("/workspace/")).write_bytes(b"x")
    assert collect_media([named(name)], str(root)).missing == []


@settings(max_examples=examples(200))
@given(
    st.text(st.characters())
    | st.lists(st.sampled_from(["..", ".", "", "a", "parent", "/", "\0", "pipe", "workspace"])).map(
        "/".join
    )
)
def test_no_name_leads_out_of_the_root(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.mktemp("root") / "in"
    root.mkdir()
    (root.parent / "a").write_bytes(b"outside")
    (root / "a").write_bytes(b"inside")
    (root / "parent").symlink_to("..")
    os.mkfifo(root / "pipe")
    report = collect_media([named(name)], str(root))
    assert len(report.files) + len(report.missing) == 1
    assert [medium.sha256 for medium in report.files if medium.sha256 == sha256(b"outside")] == []
