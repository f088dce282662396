"""Files below a directory: nothing outside is read or written, whatever lies on the way."""

import os
from pathlib import Path

import pytest

from proctor.contained import check_relative, create_below, open_below


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with a neighbour that nobody may touch."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (tmp_path / "root" / "a").mkdir(parents=True)
    return tmp_path / "root"


def outside(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root.parent / "outside").iterdir()}


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", "a/", "a\0b", "/"]
)
def test_a_path_that_may_lead_elsewhere_is_refused(root: Path, path: str) -> None:
    with pytest.raises(OSError, match="plain relative"):
        check_relative(path)
    with pytest.raises(OSError, match="plain relative"), create_below(root, path):
        pass
    with pytest.raises(OSError, match="plain relative"):
        open_below(root, path)


def test_what_is_created_can_be_opened(root: Path) -> None:
    with create_below(root, "b/c/d") as file:
        file.write(b"data")
    with open_below(root, "b/c/d") as file:
        assert file.read() == b"data"
    assert [path.name for path in (root / "b" / "c").iterdir()] == ["d"]


@pytest.mark.parametrize("path", ["a/secret", "secret", "a/b/secret"])
@pytest.mark.parametrize("is_relative", [True, False])
def test_no_link_is_followed(root: Path, path: str, *, is_relative: bool) -> None:
    link, target = root / path, root.parent / "outside"
    if link.parent != root:
        link = link.parent
        if link.is_dir():
            link.rmdir()
    else:
        target /= "secret"
    link.symlink_to(os.path.relpath(target, link.parent) if is_relative else target)
    expected = r"link, which is not followed|exists"
    with pytest.raises(OSError, match=expected), create_below(root, path) as file:
        file.write(b"evil")
    with pytest.raises(OSError, match="link, which is not followed"):
        open_below(root, path)
    assert outside(root) == {"secret": "secret"}


def test_a_pipe_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        open_below(root, "pipe")


def test_nothing_is_replaced(root: Path) -> None:
    (root / "a" / "b").write_text("first")
    with pytest.raises(FileExistsError), create_below(root, "a/b") as file:
        file.write(b"second")
    assert (root / "a" / "b").read_text() == "first"
    assert len(list((root / "a").iterdir())) == 1


def test_what_fails_leaves_no_file(root: Path) -> None:
    with pytest.raises(TypeError), create_below(root, "a/b") as file:
        file.write("half")  # type: ignore[call-overload]
    assert not list((root / "a").iterdir())
