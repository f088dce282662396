"""The host as a root file system: what is in it, and above all what is not."""

import os
import stat
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.host_base import (
    host_pin,
    is_left_out,
    load_furnishing,
    load_host_base,
)
from proctor.errors import ImageError
from tests.environments.sandbox.rootfs import open_directory
from tests.task.trees import write
from tests.unprivileged import unprivileged

RELEASE = 'NAME="Test"\nID=testix\nVERSION_ID="7"\n'


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with secrets in many places."""
    public = {
        "etc/os-release": RELEASE,
        "etc/passwd": "root:x:0:0::/root:/bin/sh\n",
        "etc/skel/.bashrc": "alias",
        "etc/pam.d/common-password": "rules",
        "etc/ssl/certs/ca.pem": "-----BEGIN CERTIFICATE-----",
        "etc/hosts": "10.0.0.1 intranet",
        "etc/apt/sources.list": "deb http://deb.example.org/debian bookworm main",
        "usr/bin/true": "",
        "var/lib/dpkg/status": "Package: a\n",
        "run/resolv.conf": "nameserver 192.0.2.1\n",
    }
    secret = {
        "etc/shadow": "s",
        "etc/shadow-": "s",
        "etc/gshadow": "s",
        "etc/sudoers": "s",
        "etc/sudoers.d/x": "s",
        "etc/ssh/ssh_host_rsa_key": "s",
        "etc/ssl/private/x.pem": "s",
        "etc/ssl/renamed": "-----BEGIN RSA PRIVATE KEY-----",
        "etc/pip.conf": "index-url = https://user:token@pypi.example.org/simple",
        "etc/machine-id": "s",
        "etc/environment": "TOKEN=s",
        "etc/.hidden": "s",
        "etc/app/api_secrets.ini": "s",
        "etc/nginx/server.key": "s",
        "etc/closed/file": "s",
        "etc/owners.conf": "s",
        "home/me/notes": "s",
        "root/.ssh/id_rsa": "s",
        "opt/tool": "s",
        "srv/data": "s",
        "var/lib/app/db": "s",
        "mnt/disk": "s",
    }
    root = write(tmp_path / "host", {**public, **secret})
    (root / "bin").symlink_to("usr/bin")
    (root / "etc/resolv.conf").symlink_to(root / "run/resolv.conf")
    (root / "etc/localtime").symlink_to("/usr/share/zoneinfo/UTC")
    (root / "etc/closed").chmod(0o750)
    (root / "etc/owners.conf").chmod(0o640)
    return root


def skeleton_of(scratch: Path, host: Path) -> Path:
    target, (layer,) = load_host_base(scratch, host).parts[0]
    assert target == "/"
    return Path(layer)


def test_no_secret_of_the_host_is_in_it(scratch: Path, host: Path) -> None:
    skeleton = skeleton_of(scratch, host)
    found = [path for path in skeleton.rglob("*") if path.is_file() and not path.is_symlink()]
    files = {path.relative_to(skeleton).as_posix() for path in found}
    assert files == {
        *("etc/os-release", "etc/passwd", "etc/skel/.bashrc", "etc/pam.d/common-password"),
        *("etc/ssl/certs/ca.pem", "etc/hosts", "etc/hostname", "etc/resolv.conf"),
        "etc/apt/sources.list",
    }


def test_only_system_directories_of_the_host_are_laid_below(scratch: Path, host: Path) -> None:
    targets = [target for target, _ in load_host_base(scratch, host).parts]
    assert targets == ["/", "/usr", "/var/lib/dpkg"]


def test_of_this_host_nothing_else_is_laid_below_either(scratch: Path) -> None:
    allowed = ("/usr", "/bin", "/sbin", "/lib", "/var/lib/")
    for target, layers in load_host_base(scratch).parts[1:]:
        assert layers == (target,)
        assert target.startswith(allowed)


def test_all_else_is_new_and_empty(scratch: Path, host: Path) -> None:
    skeleton = skeleton_of(scratch, host)
    for name, mode in {
        "tmp": 0o1777,
        "var/tmp": 0o1777,
        "root": 0o700,
        **dict.fromkeys(("home", "proc", "dev", "sys", "mnt", "opt", "srv", "usr"), 0o755),
        **dict.fromkeys(("logs/agent", "logs/artifacts", "logs/verifier", "tests"), 0o777),
        "var/lib/dpkg": 0o755,
    }.items():
        assert stat.S_IMODE((skeleton / name).stat().st_mode) == mode, name
        assert list((skeleton / name).iterdir()) == [], name
    assert (skeleton / "bin").readlink() == Path("usr/bin")


def test_hosts_names_the_sandbox_alone(scratch: Path, host: Path) -> None:
    lines = (skeleton_of(scratch, host) / "etc/hosts").read_text().splitlines()
    assert lines[0] == "127.0.0.1 localhost sandbox"
    assert not any("intranet" in line for line in lines)


def test_a_resolver_that_is_a_link_out_of_etc_works(scratch: Path, host: Path) -> None:
    path = skeleton_of(scratch, host) / "etc/resolv.conf"
    assert not path.is_symlink()
    assert path.read_text() == "nameserver 192.0.2.1\n"


def test_it_is_copied_once_a_run(scratch: Path, host: Path) -> None:
    assert load_host_base(scratch, host) is load_host_base(scratch, host)


def test_an_ordinary_user_has_the_same(scratch: Path) -> None:
    roots = names_below(skeleton_of(scratch, Path("/")))
    with open_directory() as theirs, unprivileged():
        skeleton = skeleton_of(theirs, Path("/"))
        assert names_below(skeleton) == roots
        assert skeleton.stat().st_uid == os.geteuid()


def names_below(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*")}


@pytest.mark.parametrize(
    "path",
    [
        *("shadow", "shadow-", "gshadow", "sudoers.d", "ssh", "ssl/private", "machine-id"),
        *("apt/auth.conf.d", "a/b/tls.key", "id_ed25519", ".netrc", "x/.git", "security/opasswd"),
    ],
)
def test_it_is_left_out_by_name(path: str) -> None:
    assert is_left_out(path)


@pytest.mark.parametrize("path", ["passwd", "ssl/openssl.cnf", "skel/.profile", "pam.d/passwd"])
def test_it_is_not_left_out(path: str) -> None:
    assert not is_left_out(path)


def test_a_host_without_usr_is_refused(scratch: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="has no directory usr; `--base host` needs one"):
        load_host_base(scratch, tmp_path)


def test_an_image_gets_what_docker_puts_into_every_container(scratch: Path) -> None:
    layer = load_furnishing(scratch)
    assert (layer / "etc/hosts").read_text().startswith("127.0.0.1 localhost sandbox\n")
    assert (layer / "proc").is_dir()


# The pin


def test_the_pin_names_system_and_digest(host: Path) -> None:
    name, _, digest = host_pin(host).partition("@sha256:")
    assert name == "host:testix-7"
    assert len(digest) == 64


@pytest.mark.parametrize("changed", ["etc/os-release", "var/lib/dpkg/status"])
def test_the_pin_changes_with_system_and_packages(host: Path, changed: str) -> None:
    before = host_pin(host)
    assert host_pin(host) == before
    (host / changed).write_text(f"{RELEASE}\nmore")
    assert host_pin(host) != before


def test_the_pin_of_a_host_with_rpm_is_over_its_list(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host / "var/lib/dpkg/status").unlink()
    program = write(tmp_path / "bin", {"rpm": '#!/bin/sh\ncat "$RPMS"\n'}) / "rpm"
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("RPMS", str(tmp_path / "list"))
    pins = []
    for listed in ("b 1\na 1\n", "a 1\nb 1\n", "a 2\nb 1\n"):
        (tmp_path / "list").write_text(listed)
        pins.append(host_pin(host))
    assert pins[0] == pins[1] != pins[2]


def test_a_package_database_that_cannot_be_read_is_said(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host / "var/lib/dpkg/status").unlink()
    program = write(tmp_path / "bin", {"rpm": "#!/bin/sh\nexit 1\n"}) / "rpm"
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(ImageError, match="the host's packages cannot be listed"):
        host_pin(host)
