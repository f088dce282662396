"""Images of Debian's docker-registry: pulled roots are what umoci unpacks, file by file."""

import base64
import io
import json
import os
import stat
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from proctor.digest import sha256_file, sha256_hex
from proctor.environments.sandbox.roots.image import Image
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image
from proctor.environments.sandbox.syscalls import MS_RDONLY, mount, unmount
from proctor.errors import RegistryError
from tests.become_user import FIRST_ID, IDS, PERSON
from tests.environments.sandbox.registries import (
    Request,
    basic_auth,
    docker_config,
    needs_programs,
    push,
    query_of,
    real_registry,
    small_registry,
)
from tests.environments.sandbox.rootfs import make_rootfs
from tests.environments.sandbox.saved import ARCHITECTURE, Saved, as_directory, layout_files
from tests.environments.sandbox.trees import entry
from tests.ordinary_user import ordinary_home, run_as_ordinary_user
from tests.task.trees import write

pytestmark = needs_programs
NOW = datetime(2026, 1, 2, tzinfo=UTC)
OTHER = "arm64" if ARCHITECTURE == "amd64" else "amd64"
# Version 2 of a file's capabilities: cap_net_bind_service=ep.
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")


def pax(path: Path, *members: tarfile.TarInfo, tree: Path | None = None) -> bytes:
    """The tar of a layer, with extended attributes."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        if tree is not None:
            tar.add(tree, arcname=".")
        for member in members:
            tar.addfile(member, io.BytesIO() if member.isreg() else None)
    return path.read_bytes()


def file_(name: str, xattrs: Mapping[str, str] | None = None, **facts: int) -> tarfile.TarInfo:
    member = entry(name, tarfile.REGTYPE, "", **facts)
    member.pax_headers = {f"SCHILY.xattr.{key}": value for key, value in (xattrs or {}).items()}
    return member


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, ...]:
    """What images of the world have: whiteouts, links, attributes, setuid, other owners."""
    place = tmp_path_factory.mktemp("layers")
    root = make_rootfs(place / "root")
    for name in ("keep", "gone", "whole/a", "whole/b", "swap/x", "deep/er/f"):
        write(root / "data", {name: name})
    (root / "data" / "same").hardlink_to(root / "data" / "keep")
    (root / "data" / "link").symlink_to("keep")
    (root / "lib-link").symlink_to("data/whole")
    (root / "bin" / "su").write_text("x")
    (root / "bin" / "su").chmod(0o4755)
    os.chown(root / "data" / "keep", 1000, 1001)
    os.chown(root / "data" / "whole", 70, 71)
    (root / "data" / "whole").chmod(0o2770)
    os.lchown(root / "data" / "link", 12, 13)
    capable = {"security.capability": CAPABILITY.decode(errors="surrogateescape")}
    first = pax(
        place / "1.tar",
        file_("data/capable", capable, uid=0, mode=0o755),
        file_("data/noted", {"user.note": "words"}, uid=33, gid=33, mode=0o640),
        tree=root,
    )
    second = pax(
        place / "2.tar",
        entry("data/.wh.gone"),
        entry("data/whole/.wh..wh..opq"),
        entry("data/whole/new", uid=5),
        entry("data/swap", tarfile.SYMTYPE, "whole"),
        entry("data/other-name", tarfile.LNKTYPE, "data/noted"),
        entry("data/deep/er/second", mode=0o600, mtime=1_700_000_000),
    )
    third = pax(
        place / "3.tar",
        entry("data/.wh.deep"),
        entry("data/keep", uid=7, gid=8, mode=0o444),
        entry("data/dir-again", tarfile.DIRTYPE, mode=0o1777),
        entry("lib-link/through", uid=9),
    )
    return first, second, third


def layout(place: Path, *images: Saved) -> Path:
    """An OCI layout on the disk."""
    place.mkdir()
    return as_directory(place, layout_files(*images))


def pull(store: ImageStore, reference: str, home: Path, **more: str) -> Image:
    options = PullOptions(env={"HOME": str(home), "PATH": os.environ["PATH"]}, now=NOW, **more)  # type: ignore[arg-type]
    return pull_image(store, reference, options).image


@contextmanager
def mounted(store: ImageStore, image: Image, place: Path) -> Iterator[Path]:
    """The layers of an image as one tree, as a sandbox has them."""
    place.mkdir()
    empty = place.with_name(f"{place.name}-empty")
    empty.mkdir()
    lowers = ":".join(map(str, (*store.lowers(image), empty)))
    mount("overlay", str(place), "overlay", MS_RDONLY, f"lowerdir={lowers}")
    try:
        yield place
    finally:
        unmount(str(place))


def facts_of(root: Path) -> dict[str, object]:
    """Everything about every file below a directory."""
    names: dict[tuple[int, int], list[str]] = {}
    facts: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(root))
        content = str(path.readlink()) if path.is_symlink() else ""
        if stat.S_ISREG(status.st_mode):
            content = sha256_file(path)
            names.setdefault((status.st_dev, status.st_ino), []).append(name)
        xattrs = {
            key: os.getxattr(path, key, follow_symlinks=False)
            for key in os.listxattr(path, follow_symlinks=False)
        }
        times = 0 if path.is_dir() and not path.is_symlink() else int(status.st_mtime)
        facts[name] = (oct(status.st_mode), status.st_uid, status.st_gid, content, xattrs, times)
    facts["hard links"] = sorted(found for found in names.values() if len(found) > 1)
    return facts


def unpack_with_umoci(source: Path, tag: str, place: Path) -> Path:
    words = ["umoci", "unpack", "--image", f"{source}:{tag}", str(place)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "rootfs"


@pytest.mark.parametrize("packing", ["gzip", "zstd", ""])
def test_the_root_is_what_umoci_unpacks(
    layers: tuple[bytes, ...], tmp_path: Path, packing: str
) -> None:
    source = layout(tmp_path / "layout", Saved(layers, "gzip", tags=("1",)))
    theirs = unpack_with_umoci(source, "1", tmp_path / "bundle")
    # umoci does not know zstd, so it unpacks the same layers packed with gzip.
    pushed = layout(tmp_path / "pushed", Saved(layers, packing, tags=("1",)))
    store = ImageStore(tmp_path / "cache")
    with real_registry(tmp_path / "registry") as host:
        reference = push(pushed, "1", host, "org/tool:1")
        image = pull(store, reference, tmp_path)
    with mounted(store, image, tmp_path / "merged") as ours:
        assert facts_of(ours) == facts_of(theirs)


def test_an_index_of_two_platforms(layers: tuple[bytes, ...], tmp_path: Path) -> None:
    ours = Saved(layers, "gzip", tags=("1",))
    theirs = Saved((*layers, layers[1]), "gzip", architecture=OTHER, tags=("2",))
    source = layout(tmp_path / "layout", ours, theirs)
    index = json.loads((source / "index.json").read_text())
    for one in index["manifests"]:
        one.pop("annotations")
    data = json.dumps(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", **index}
    ).encode()
    (source / "blobs" / "sha256" / sha256_hex(data)).write_bytes(data)
    top = {
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "digest": f"sha256:{sha256_hex(data)}",
        "size": len(data),
        "annotations": {"org.opencontainers.image.ref.name": "both"},
    }
    (source / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))
    store = ImageStore(tmp_path / "cache")
    with real_registry(tmp_path / "registry") as host:
        reference = push(source, "both", host, "tool:both", "--multi-arch", "all")
        assert pull(store, reference, tmp_path).image_id == ours.image_id
        other = pull(store, reference, tmp_path, platform=f"linux/{OTHER}", name="other")
        assert other.image_id == theirs.image_id


def test_a_registry_with_a_password(layers: tuple[bytes, ...], tmp_path: Path) -> None:
    source = layout(tmp_path / "layout", Saved(layers, "gzip", tags=("1",)))
    auth = basic_auth(tmp_path / "registry", "ada", "secret")
    store = ImageStore(tmp_path / "cache")
    with real_registry(tmp_path / "registry", auth) as host:
        reference = push(source, "1", host, "tool:1", "--dest-creds", "ada:secret")
        with pytest.raises(RegistryError, match="log in with `docker login"):
            pull(store, reference, tmp_path)
        docker_config(tmp_path, host, "ada:wrong")
        with pytest.raises(RegistryError, match=r"tool with the login in ~/.docker/config.json"):
            pull(store, reference, tmp_path)
        docker_config(tmp_path, host)
        assert pull(store, reference, tmp_path).n_entries > 0


# Tokens


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Signer:
    """A token server of our own, whose certificate docker-registry trusts."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tokens")])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
        builder = builder.public_key(self.key.public_key()).serial_number(1)
        builder = builder.not_valid_before(now - timedelta(days=1))
        builder = builder.not_valid_after(now + timedelta(days=1))
        self.certificate = builder.sign(self.key, hashes.SHA256())
        self.path = place / "tokens.pem"
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, scope: str) -> str:
        der = self.certificate.public_bytes(serialization.Encoding.DER)
        header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(der).decode()]}
        kind, name, actions = scope.rsplit(":", 2) if scope.count(":") > 1 else ("", "", "")
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        now = int(time.time())
        claims = {
            "iss": "tokens",
            "aud": "registry",
            "sub": "ada",
            "jti": "1",
            "iat": now,
            "nbf": now - 10,
            "exp": now + 300,
            "access": access,
        }
        text = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
        r, s = utils.decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def test_a_registry_with_tokens(layers: tuple[bytes, ...], tmp_path: Path) -> None:
    source = layout(tmp_path / "layout", Saved(layers, "gzip", tags=("1",)))
    signer = Signer(tmp_path / "keys")
    store = ImageStore(tmp_path / "cache")
    with small_registry() as tokens:

        def answer(request: Request) -> None:
            if request.headers.get("Authorization") != "Basic YWRhOnNlY3JldA==":
                request.say(401)
                return
            scope = query_of(request.path).get("scope", [""])[0]
            request.say(200, json.dumps({"token": signer.sign(scope)}).encode())

        tokens.answers["/token"] = answer
        settings = {
            "realm": f"http://{tokens.host}/token",
            "service": "registry",
            "issuer": "tokens",
            "rootcertbundle": str(signer.path),
        }
        with real_registry(tmp_path / "registry", {"token": settings}) as host:
            reference = push(source, "1", host, "tool:1", "--dest-creds", "ada:secret")
            with pytest.raises(RegistryError, match="refuses without a user, with status 401"):
                pull(store, reference, tmp_path)
            docker_config(tmp_path, host)
            assert pull(store, reference, tmp_path).n_entries > 0
        assert query_of(tokens.seen[-1][0])["scope"] == ["repository:tool:pull"]


# An ordinary user


@pytest.mark.parametrize("machine", [(IDS,), ()])
def test_an_ordinary_user_pulls(
    layers: tuple[bytes, ...], tmp_path: Path, machine: tuple[str, ...]
) -> None:
    source = layout(tmp_path / "layout", Saved(layers, "gzip", tags=("1",)))
    with ordinary_home() as home, real_registry(tmp_path / "registry") as host:
        reference = push(source, "1", host, "tool:1")
        ran = run_as_ordinary_user(
            "proctor", "image", "pull", reference, "--json", home=home, machine=machine
        )
        assert ran.code == 0, ran.err
        image = json.loads(ran.out)["image"]
        store = ImageStore(home / ".cache" / "proctor")
        found = store.find(reference)
        assert found is not None
        top, _, bottom = (store.layer(chain) / "files" for chain in reversed(found.layers))
        owner = (top / "data" / "keep").stat().st_uid
        assert owner == (FIRST_ID + 7 - 1 if machine else PERSON)
        assert stat.S_IMODE((bottom / "bin" / "su").stat().st_mode) == 0o4755
        said = any("belong to root instead of to other users" in note for note in image["notes"])
        assert said == (not machine)
        removed = run_as_ordinary_user(
            "proctor", "image", "prune", reference, home=home, machine=machine
        )
        assert removed.code == 0, removed.err
        assert list(store.layer("x").parent.iterdir()) == []
