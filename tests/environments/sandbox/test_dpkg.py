"""Records of packages, which the agent can write: what they excuse, and what reading them costs."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.digest import md5_hex
from proctor.environments.sandbox import changes as changes_module
from proctor.environments.sandbox import dpkg
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.changes import LayeredChanges

INFO = "var/lib/dpkg/info"
ALTERNATIVES = "var/lib/dpkg/alternatives"
MIB = 1 << 20
LARGEST = 64 * MIB

MEASURE = """
import sys
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.changes import LayeredChanges

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10

changes = LayeredChanges((Part("/", (), sys.argv[1], ""),))
before = peak()
changes.is_installed("/usr/bin/evil", is_new=True)
changes.is_alternative("/etc/alternatives/link")
changes.is_packaged("/usr/bin/evil")
changes.is_packaged("/usr/lib/python3/dist-packages/a.pth")
print(peak() - before)
"""


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    for place in ("usr/bin", INFO, ALTERNATIVES, "etc/alternatives"):
        (tmp_path / "upper" / place).mkdir(parents=True)
    return tmp_path / "upper"


def changes_in(upper: Path) -> LayeredChanges:
    return LayeredChanges((Part("/", (), str(upper), ""),))


def install(upper: Path, content: bytes = b"evil") -> None:
    """Write a program, and the records of a package that installed it."""
    (upper / "usr/bin/evil").write_bytes(content)
    (upper / INFO / "evil.list").write_text("/.\n/usr/bin/evil\n")
    (upper / INFO / "evil.md5sums").write_text(f"{md5_hex(content)}  usr/bin/evil\n")
    status = "Package: other\n\nPackage: evil\nStatus: install ok installed\n"
    (upper / "var/lib/dpkg/status").write_text(
        f"{status}Conffiles:\n /etc/evil {md5_hex(b'x')}\n /etc/old {md5_hex(b'x')} obsolete\n"
    )


def write_sparse(places: list[Path]) -> None:
    """Write files that take 4 KiB each on the disk, with a text of 4 bytes for each character."""
    for n, place in enumerate(places):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{n}\N{GRINNING FACE}")
        os.truncate(place, LARGEST)


def write_long_list(upper: Path) -> None:
    for n in range(2):
        lines = b"".join(b"/%060x\n" % (n << 32 | k) for k in range(900_000))
        (upper / INFO / f"long{n}.list").write_bytes(lines)


def write_empty_lines(upper: Path) -> None:
    (upper / "var/lib/dpkg/status").write_bytes(b"\n" * LARGEST)


def write_words(upper: Path) -> None:
    lines = b"Package: a\nStatus: install ok installed\nConffiles:\n " + b"a " * (30 * MIB)
    (upper / "var/lib/dpkg/status").write_bytes(lines)


def write_alternatives(upper: Path) -> None:
    (upper / "etc/alternatives/link").symlink_to("/bin/sh")
    write_sparse([upper / ALTERNATIVES / f"hole{n}" for n in range(4)])


def write_pip(upper: Path) -> None:
    top = upper / "usr/lib/python3/dist-packages"
    write_sparse([top / f"hole{n}.dist-info" / "RECORD" for n in range(4)])
    (top / "a.dist-info").mkdir()
    (top / "a.dist-info" / "RECORD").write_text("a.pth,,\n")
    (top / "a.pth").write_text("import a\n")


HOSTILE: dict[str, Callable[[Path], None]] = {
    "lists": lambda upper: write_sparse([upper / INFO / f"hole{n}.list" for n in range(4)]),
    "sums": lambda upper: write_sparse([upper / INFO / f"hole{n}.md5sums" for n in range(4)]),
    "many lines": write_long_list,
    "empty lines": write_empty_lines,
    "many words": write_words,
    "alternatives": write_alternatives,
    "records of pip": write_pip,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_records_of_any_size_take_a_limited_memory(upper: Path, name: str) -> None:
    install(upper)
    HOSTILE[name](upper)
    run = [sys.executable, "-c", MEASURE, str(upper)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 350


@pytest.mark.parametrize("name", ["lists", "sums", "many lines", "empty lines"])
def test_records_beyond_the_limit_excuse_nothing(upper: Path, name: str) -> None:
    install(upper)
    assert changes_in(upper).is_installed("/usr/bin/evil", is_new=True)
    HOSTILE[name](upper)
    changes = changes_in(upper)
    assert not changes.is_installed("/usr/bin/evil", is_new=True)
    assert not changes.is_installed("/var/lib/dpkg/status", is_new=True)
    assert not changes.is_packaged("/usr/bin/evil")


def test_too_many_records_excuse_nothing(upper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpkg, "_MOST_FILES", 100)
    install(upper)
    for n in range(100):
        (upper / INFO / f"{n}.md5sums").touch()
    assert not changes_in(upper).is_installed("/usr/bin/evil", is_new=True)


def test_records_of_pip_beyond_the_limit_excuse_nothing(upper: Path) -> None:
    write_pip(upper)
    assert not changes_in(upper).is_packaged("/usr/lib/python3/dist-packages/a.pth")


def test_the_records_of_a_large_system_are_read() -> None:
    """3,000 packages with a million lines, 100 MB."""
    endings = (".list", ".md5sums")
    names = [f"package-{n}{ending}" for n in range(3_000) for ending in endings]

    def read(path: str) -> bytes | None:
        name, ending = Path(path).stem, Path(path).suffix
        paths = [f"usr/share/{name}/a/directory/with/a/long/name/{k:020}" for k in range(170)]
        begin = "/" if ending == ".list" else f"{md5_hex(b'')}  "
        return "".join(f"{begin}{path}\n" for path in paths).encode() if ending else None

    records = dpkg.DpkgRecords(lambda directory: names if directory == f"/{INFO}" else [], read)
    last = f"/usr/share/package-2999/a/directory/with/a/long/name/{169:020}"
    assert records.has_path(last)
    assert records.has_file(last, md5_hex(b""))


def test_settings_of_installed_packages_are_known(upper: Path) -> None:
    install(upper)
    for path, content in (("etc/evil", "x"), ("etc/old", "x"), ("etc/other", "x")):
        (upper / path).write_text(content)
    changes = changes_in(upper)
    found = [changes.is_packaged(f"/etc/{name}") for name in ("evil", "old", "other")]
    assert found == [True, True, False]


def test_a_name_that_is_not_utf_8_is_found_in_the_records(upper: Path) -> None:
    install(upper)
    path = os.fsdecode(b"/usr/bin/caf\xe9")
    Path(f"{upper}{path}").write_bytes(b"new")
    with (upper / INFO / "evil.list").open("ab") as list_:
        list_.write(b"/usr/bin/caf\xe9\n")
    with (upper / INFO / "evil.md5sums").open("ab") as sums:
        sums.write(md5_hex(b"new").encode() + b"  usr/bin/caf\xe9\n")
    assert changes_in(upper).is_installed(path, is_new=True)


# Work for each link


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what is hashed."""
    sizes: list[int] = []

    def watch(data: bytes) -> str:
        sizes.append(len(data))
        return md5_hex(data)

    for name in ("md5_hex", "sha256_hex"):
        monkeypatch.setattr(changes_module, name, watch)
    return sizes


def test_a_file_with_many_links_is_hashed_once(upper: Path, hashed: list[int]) -> None:
    install(upper, bytes(MIB))
    paths = [f"/usr/bin/{kind}{n}" for kind in ("soft", "hard") for n in range(50)]
    for path in paths:
        if "soft" in path:
            Path(f"{upper}{path}").symlink_to("evil")
        else:
            Path(f"{upper}{path}").hardlink_to(upper / "usr/bin/evil")
    (upper / INFO / "links.list").write_text("\n".join(paths))
    changes = changes_in(upper)
    found = [changes.is_installed(path, is_new=True) for path in paths]
    # Symlinks lead to what a package brought; the other names have no digest on record.
    assert found == [True] * 50 + [False] * 50
    assert hashed == [MIB]


def test_files_that_no_package_lists_are_not_read(upper: Path, hashed: list[int]) -> None:
    install(upper)
    (upper / "usr/bin/mine").write_bytes(bytes(MIB))
    assert not changes_in(upper).is_installed("/usr/bin/mine", is_new=True)
    assert hashed == []


def test_hashing_ends_at_a_limit(
    upper: Path, hashed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "_MOST_HASHED", 3 * MIB)
    install(upper)
    paths = [f"/usr/bin/hole{n}" for n in range(5)]
    for path in paths:
        Path(f"{upper}{path}").touch()
        os.truncate(f"{upper}{path}", MIB)
    (upper / INFO / "holes.list").write_text("\n".join(paths))
    sums = "".join(f"{md5_hex(bytes(MIB))}  {path[1:]}\n" for path in paths)
    (upper / INFO / "evil.md5sums").write_text(sums)
    changes = changes_in(upper)
    found = [changes.is_installed(path, is_new=True) for path in paths]
    assert found == [True, True, True, False, False]
    assert hashed == [MIB] * 3


# update-alternatives


EDITOR = """auto
/usr/bin/editor
editor.1.gz
/usr/share/man/man1/editor.1.gz

/bin/ed
-100

/usr/bin/nano
40
/usr/share/man/man1/nano.1.gz

"""


@pytest.mark.parametrize(
    ("path", "target", "is_shared"),
    [
        ("/usr/bin/editor", "/etc/alternatives/editor", True),
        ("/usr/share/man/man1/editor.1.gz", "/etc/alternatives/editor.1.gz", True),
        ("/etc/alternatives/editor", "/bin/ed", True),
        ("/etc/alternatives/editor", "/usr/bin/nano", True),
        ("/etc/alternatives/editor.1.gz", "/usr/share/man/man1/nano.1.gz", True),
        ("/etc/alternatives/editor", "/usr/share/man/man1/nano.1.gz", False),
        ("/etc/alternatives/editor", "/bin/sh", False),
        ("/etc/alternatives/pager", "/bin/ed", False),
        ("/usr/bin/editor", "/bin/ed", False),
        ("/usr/bin/pager", "/etc/alternatives/pager", False),
    ],
)
def test_links_of_alternatives_are_known(
    upper: Path, path: str, target: str, is_shared: bool
) -> None:
    (upper / ALTERNATIVES / "editor").write_text(EDITOR)
    place = Path(f"{upper}{path}")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    assert changes_in(upper).is_alternative(path) == is_shared


@pytest.mark.parametrize("cut", range(0, len(EDITOR), 7))
def test_a_record_that_is_cut_short_is_no_error(upper: Path, cut: int) -> None:
    (upper / ALTERNATIVES / "editor").write_text(EDITOR[:cut])
    (upper / "etc/alternatives/editor").symlink_to("/bin/sh")
    assert not changes_in(upper).is_alternative("/etc/alternatives/editor")
