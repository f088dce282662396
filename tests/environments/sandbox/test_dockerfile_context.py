"""Which files COPY takes: patterns, .dockerignore, directories and links."""

import gzip
import os
import tarfile
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.context import Context, Selection, parse_dockerignore, stage
from proctor.environments.sandbox.roots.instructions import Copy
from proctor.errors import ImageError
from tests.task.trees import write


def copy(*sources: str, is_add: bool = False, chmod: int | None = None) -> Copy:
    return Copy(
        1, "COPY", sources, (), "/x", is_directory=True, is_add=is_add, chown=None, chmod=chmod
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = ["Dockerfile", "a.py", "b.py", "notes.md", "src/c.py", "src/deep/d.py", "src/e.txt"]
    return write(tmp_path, {name: name for name in files})


def select(root: Path, *sources: str, is_add: bool = False) -> Selection:
    return Context(root).select(copy(*sources, is_add=is_add))


def paths(root: Path, *sources: str) -> list[str]:
    return [item.path for item in select(root, *sources).items]


def test_a_file_is_taken_by_its_last_name(root: Path) -> None:
    assert paths(root, "src/c.py") == ["c.py"]
    assert select(root, "src/c.py").is_file


def test_of_a_directory_the_contents_are_taken(root: Path) -> None:
    assert paths(root, "src/") == ["c.py", "deep", "deep/d.py", "e.txt"]
    assert not select(root, "src").is_file


def test_everything_is_a_point(root: Path) -> None:
    assert paths(root, ".") == [
        *("Dockerfile", "a.py", "b.py", "notes.md"),
        *("src", "src/c.py", "src/deep", "src/deep/d.py", "src/e.txt"),
    ]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py", "b.py"]),
        ("?.py", ["a.py", "b.py"]),
        ("[a].py", ["a.py"]),
        ("[^a].py", ["b.py"]),
        ("s*/c.py", ["c.py"]),
        ("/a.p*", ["a.py"]),
        ("*.rs", []),
    ],
)
def test_patterns_stay_within_a_name(root: Path, pattern: str, found: list[str]) -> None:
    assert paths(root, pattern) == found


def test_nothing_outside_is_reached(root: Path) -> None:
    (root.parent / "secret").write_text("s")
    with pytest.raises(ImageError, match=r"\.\./secret: not in "):
        select(root, "../secret")


def test_a_link_that_is_named_is_followed_inside_only(root: Path) -> None:
    (root / "link").symlink_to("src")
    (root / "out").symlink_to("/etc/passwd")
    assert paths(root, "link")[0] == "c.py"
    with pytest.raises(ImageError, match="out: a symlink that leads out of"):
        select(root, "out")


def test_a_link_in_a_directory_stays_a_link(root: Path, tmp_path: Path) -> None:
    (root / "src" / "out").symlink_to("/etc/passwd")
    staged = tmp_path / "staged"
    stage(select(root, "src").items, staged)
    assert (staged / "out").readlink() == Path("/etc/passwd")


def test_a_pipe_is_refused(root: Path) -> None:
    os.mkfifo(root / "src" / "pipe")
    with pytest.raises(ImageError, match="neither a file, a directory nor a link"):
        select(root, "src")


def test_an_archive_is_unpacked_by_add_only(root: Path) -> None:
    (root / "x.tar").write_bytes(tarfile.TarInfo("x").tobuf() + bytes(1024))
    (root / "no.tar").write_text("text")
    assert select(root, "x.tar", is_add=True).archives == (root / "x.tar",)
    assert select(root, "no.tar", is_add=True).archives == ()
    assert paths(root, "x.tar") == ["x.tar"]


NO_ARCHIVES = {
    "a disk image, which begins with zeros": bytes(1024) + b"\x12\x34" * 512,
    "an empty archive": bytes(10240),
    "no file at all": b"",
    "not gzip": b"\x1f\x8b and a text",
    "gzip, cut short": gzip.compress(bytes(range(256)) * 99)[:40],
    "gzip of another file": gzip.compress(b"text"),
    "gzip of zeros": gzip.compress(bytes(10240)),
    "not bzip2": b"BZhello",
    "not xz": b"\xfd7zXZ\x00 and a text",
    "not zstd": b"\x28\xb5\x2f\xfd and a text",
    "headers without end": gzip.compress(tarfile.TarInfo("x" * (1 << 25)).tobuf()),
}


@pytest.mark.parametrize("name", NO_ARCHIVES)
def test_what_is_no_archive_is_copied_by_add(root: Path, name: str) -> None:
    (root / "disk.img").write_bytes(NO_ARCHIVES[name])
    selection = select(root, "disk.img", is_add=True)
    assert selection.archives == ()
    assert [item.path for item in selection.items] == ["disk.img"]


def test_modes_are_kept_and_can_be_chosen(root: Path, tmp_path: Path) -> None:
    (root / "a.py").chmod(0o750)
    staged = tmp_path / "staged"
    stage(select(root, "a.py").items, staged)
    assert (staged / "a.py").stat().st_mode & 0o777 == 0o750
    (item,) = Context(root).select(copy("a.py", chmod=0o444)).items
    assert item.mode == 0o444


def test_what_decides_an_item_changes_with_its_bytes_and_mode(root: Path) -> None:
    def line() -> str:
        return select(root, "a.py").items[0].line

    first = line()
    assert line() == first
    (root / "a.py").write_text("changed")
    second = line()
    (root / "a.py").chmod(0o700)
    assert len({first, second, line()}) == 3


@pytest.mark.parametrize(
    ("rules", "left_out", "kept"),
    [
        ("*.md", ["a.md"], ["x/a.md", "a.mdx"]),
        ("**/*.md", ["a.md", "x/a.md", "x/y/a.md"], ["a.txt"]),
        ("node_modules", ["node_modules", "node_modules/x/y"], ["x/node_modules"]),
        ("/dist/", ["dist", "dist/a"], ["x/dist"]),
        ("*\n!a.py", ["b.py", "x/a.py"], ["a.py"]),
        ("src\n!src/keep\nsrc/keep/not", ["src/a", "src/keep/not"], ["src/keep", "src/keep/b"]),
        ("# comment\n\n  x?  ", ["xy"], ["x", "xyz"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b"]),
        ("a/**/z", ["a/z", "a/b/c/z"], ["a/b"]),
        (r"a\*", ["a*"], ["ab"]),
    ],
)
def test_dockerignore_leaves_out(rules: str, left_out: list[str], kept: list[str]) -> None:
    ignored = parse_dockerignore(rules, ".dockerignore")
    assert [path in ignored for path in left_out] == [True] * len(left_out)
    assert [path in ignored for path in kept] == [False] * len(kept)


@pytest.mark.parametrize("rules", ["!", "a[b"])
def test_a_bad_rule_is_named_with_its_line(rules: str) -> None:
    with pytest.raises(ImageError, match=r"^\.dockerignore:2: "):
        parse_dockerignore(f"x\n{rules}", ".dockerignore")


def test_what_is_ignored_is_not_copied(root: Path) -> None:
    write(root, {".dockerignore": "**/*.py\n!src/deep\n.dockerignore\n"})
    assert paths(root, ".") == [
        *("Dockerfile", "notes.md", "src", "src/deep", "src/deep/d.py", "src/e.txt")
    ]
    with pytest.raises(ImageError, match=r"a\.py: not in .*, or excluded by \.dockerignore"):
        select(root, "a.py")
