"""Registries and layers of strangers: each gets a sentence, and leaves nothing."""

import gzip
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from proctor.environments.sandbox.roots import image_tar
from proctor.environments.sandbox.roots.images import ImageStore
from proctor.environments.sandbox.roots.pull import PullOptions, pull_image
from proctor.environments.sandbox.roots.registry.client import Patience
from proctor.errors import ImageError, RegistryError, UnreachableRegistryError
from tests.environments.sandbox.registries import (
    Request,
    SmallRegistry,
    docker_config,
    free_port,
    small_registry,
)
from tests.environments.sandbox.saved import MANIFEST, Saved, directory, hard, layer, link
from tests.environments.sandbox.trees import entry

NOW = datetime(2026, 1, 2, tzinfo=UTC)
INDEX = "application/vnd.oci.image.index.v1+json"
BLOBS = "proctor.environments.sandbox.roots.registry.blobs"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "cache")


@pytest.fixture
def refused(store: ImageStore, home: Path, tmp_path: Path) -> Callable[..., str]:
    """Pulls what cannot be pulled, and sees that nothing is left; returns the sentence."""

    def run(reference: str, kind: type[ImageError] = ImageError) -> str:
        options = PullOptions(env={"HOME": str(home), "PATH": os.environ["PATH"]}, now=NOW)
        with pytest.raises(kind) as caught:
            pull_image(store, reference, options)
        left = [path for path in (tmp_path / "cache").rglob("*") if not path.is_dir()]
        assert [path.name for path in left if path.name != "lock"] == []
        assert [path.name for path in store.layer("x").parent.glob("*")] == []
        assert not (tmp_path / "evil").exists()
        return str(caught.value)

    return run


# Layers


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("../evil", "x")], "leads out of the root file system with `..`; refused"),
        ([("usr/../../evil", "x")], "leads out of the root file system"),
        ([("usr/../.wh.evil", "")], "leads out of the root file system"),
        ([link("out", "/"), ("out/evil", "x")], "is below out, which is a link"),
        ([link("out", "../../../.."), ("out/evil", "x")], "is below out, which is a link"),
        ([link("out", "/nowhere"), ("out/evil", "x")], "is below out, which is a link"),
        ([link("a", "b"), link("b", "a"), ("a/evil", "x")], "is below a, which is a link"),
        ([hard("evil", "../../etc/passwd")], "leads out of the root file system"),
        ([hard("evil", "/etc/passwd")], "a hard link to etc/passwd, which is not an earlier file"),
        ([link("out", "/etc"), hard("evil", "out/passwd")], "which is not an earlier file"),
        ([("usr/.wh...", "")], "a whiteout without a name; refused"),
        ([("x", "x"), ("x/evil", "x")], "is below x, which is a file"),
        ([("/".join("d" * 600), "x")], "is more than 500 directories deep; refused"),
    ],
)
def test_members_that_lead_out_are_refused(
    registry: SmallRegistry, refused: Callable[..., str], members: list[object], message: str
) -> None:
    one = layer(directory("usr"), *members)  # type: ignore[arg-type]
    assert message in refused(registry.put("tool", Saved((one,), "gzip")))


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([link("out", "/etc")], [("out/evil", "x")], "out: is a link of a lower layer"),
        ([link("out", "..")], [("out/evil", "x")], "out: is a link of a lower layer"),
        ([("x", "x")], [("x/evil", "x")], "x: is a file of a lower layer"),
        ([link("out", "/etc")], [hard("evil", "out/passwd")], "which is not an earlier file"),
        ([link("out", "/etc")], [("out/.wh..wh..opq", ""), ("out/evil", "x")], "of a lower layer"),
    ],
)
def test_links_of_lower_layers_lead_nowhere(
    registry: SmallRegistry,
    refused: Callable[..., str],
    low: list[object],
    high: list[object],
    message: str,
) -> None:
    layers = (layer(directory("usr"), *low), layer(*high))  # type: ignore[arg-type]
    assert message in refused(registry.put("tool", Saved(layers, "gzip")))


@pytest.mark.parametrize(
    "replaced", [[], [hard("x", "d/e/f")]], ids=["marked", "copied for a hard link"]
)
def test_a_hidden_directory_that_became_a_link_leads_nowhere(
    registry: SmallRegistry, store: ImageStore, home: Path, tmp_path: Path, replaced: list[object]
) -> None:
    (tmp_path / "outside" / "e").mkdir(parents=True)
    low = layer(directory("d"), directory("d/e"), ("d/e/f", "x"))
    marker = ("d/e/.wh..wh..opq", "")
    high = layer(*replaced, marker, link("d", str(tmp_path / "outside")))  # type: ignore[arg-type]
    options = PullOptions(env={"HOME": str(home)}, now=NOW)
    pull_image(store, registry.put("tool", Saved((low, high))), options)
    assert os.listxattr(tmp_path / "outside" / "e") == []


def test_a_hidden_directory_may_become_a_file(
    registry: SmallRegistry, store: ImageStore, home: Path
) -> None:
    low = layer(directory("d"), directory("d/e"), ("d/e/f", "x"))
    high = layer(("d/e/.wh..wh..opq", ""), ("d", "file"))
    reference = registry.put("tool", Saved((low, high)))
    found = pull_image(store, reference, PullOptions(env={"HOME": str(home)}, now=NOW)).image
    assert (store.layer(found.layers[-1]) / "files" / "d").read_text() == "file"


def test_a_member_that_the_disk_cannot_have_is_refused_at_its_header(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    made = io.BytesIO()
    huge = entry("usr/zeros", size=1 << 39)
    made.write(huge.tobuf(tarfile.GNU_FORMAT))
    # The contents do not come.
    assert "unpacks to more than" in refused(registry.put("tool", Saved((made.getvalue(),))))


def test_a_bomb_may_not_be_spread_over_layers(
    registry: SmallRegistry,
    refused: Callable[..., str],
    store: ImageStore,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(image_tar, "_ALLOWANCE", 1 << 20)
    monkeypatch.setattr(image_tar, "_RATIO", 1)
    layers = tuple(layer(entry(f"usr/{n}", size=400_000)) for n in range(3))
    said = refused(registry.put("tool", Saved(layers, "zstd")))
    assert "refused as a decompression bomb" in said
    monkeypatch.setattr(image_tar, "_ALLOWANCE", 1_300_000)
    reference = registry.put("tool", Saved(layers, "zstd"))
    options = PullOptions(env={"HOME": str(home)}, now=NOW)
    assert len(pull_image(store, reference, options).image.layers) == 3


def test_a_budget_leaves_a_reserve_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def of(total: int, free: int) -> image_tar.Budget:
        usage = shutil.disk_usage(tmp_path)._replace(total=total, free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        return image_tar.Budget(tmp_path)

    gib = 1 << 30
    of(500 * gib, 100 * gib).check(95 * gib)
    with pytest.raises(ImageError, match="without a reserve"):
        of(500 * gib, 100 * gib).check(95 * gib + 1)
    of(20 * gib, 10 * gib).check(9 * gib)
    with pytest.raises(ImageError, match="without a reserve"):
        of(20 * gib, 10 * gib).check(9 * gib + 1)
    full = of(500 * gib, 4 * gib)
    full.take_entry()
    with pytest.raises(ImageError, match="without a reserve"):
        full.take_entry()


def test_entries_take_space_even_if_they_are_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(total=1_000_000, free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    budget = image_tar.Budget(tmp_path)
    for _ in range(232):
        budget.take_entry()
    with pytest.raises(ImageError, match="unpacks to more than"):
        budget.take_entry()


def test_unpacked_bytes_are_limited(registry: SmallRegistry, refused: Callable[..., str]) -> None:
    # A sparse member of 512 bytes that is larger than any disk.
    sparse = tarfile.TarInfo("usr/zeros")
    sparse.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "usr/zeros",
        "GNU.sparse.realsize": str(1 << 39),
    }
    content = b"1\n0\n0\n".ljust(512, b"\0")
    sparse.size = len(content)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(sparse, io.BytesIO(content))
    said = refused(registry.put("tool", Saved((made.getvalue(),))))
    assert "unpacks to more than" in said


def test_a_layer_whose_contents_are_not_what_the_configuration_says_is_refused(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    class Lying(Saved):
        @property
        def packed(self) -> list[bytes]:
            return [gzip.compress(layer(("usr/other", "x")))]

    assert "it was altered or damaged" in refused(registry.put("tool", Lying()))


def test_the_second_layer_takes_the_first_with_it(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    layers = (layer(("usr/x", "x")), layer(("../evil", "x")))
    assert "leads out" in refused(registry.put("tool", Saved(layers)))


NO_ARCHIVES = {
    "empty": b"",
    "words": b"no archive at all" * 100,
    "cut": gzip.compress(b"x" * 2000, mtime=0)[:20],
}


@pytest.mark.parametrize("data", NO_ARCHIVES.values(), ids=NO_ARCHIVES)
def test_what_is_no_archive_is_refused(
    registry: SmallRegistry, refused: Callable[..., str], data: bytes
) -> None:
    assert "layer sha256:" in refused(registry.put("tool", Saved((data,))))


# Blobs


def send(data: bytes, length: int | None = None) -> Callable[[Request], None]:
    def answer(request: Request) -> None:
        request.send_response(200)
        if length is not None:
            request.send_header("Content-Length", str(length))
        request.end_headers()
        request.wfile.write(data)
        request.close_connection = True

    return answer


def test_a_blob_with_another_digest_is_refused(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    one = layer(("usr/x", "x"))
    reference = registry.put("tool", Saved((one,)))
    registry.answers[registry.blob_path("tool", one)] = send(b"\0" * len(one), len(one))
    said = refused(reference, RegistryError)
    assert f"has the digest {sha256_hex(bytes(len(one)))}: it was altered or damaged" in said


def test_an_endless_blob_ends_at_its_size(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    one = layer(("usr/x", "x"))
    reference = registry.put("tool", Saved((one,)))

    def answer(request: Request) -> None:
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(bytes(1 << 16))

    registry.answers[registry.blob_path("tool", one)] = answer
    assert f"is longer than the {len(one):,} bytes of its manifest" in refused(reference)


def test_a_short_blob_is_not_taken_for_a_whole_one(
    registry: SmallRegistry, store: ImageStore, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{BLOBS}._WAITS", (0.01,))
    one = layer(("usr/x", "x"))
    reference = registry.put("tool", Saved((one,)))
    registry.answers[registry.blob_path("tool", one)] = send(one[:100], 100)
    options = PullOptions(env={"HOME": str(home)}, now=NOW)
    with pytest.raises(UnreachableRegistryError, match="ended after"):
        pull_image(store, reference, options)
    assert store.find(reference) is None


def test_a_trickle_is_given_up(
    registry: SmallRegistry, store: ImageStore, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{BLOBS}._WAITS", ())
    monkeypatch.setattr(f"{BLOBS}._WINDOW_SECONDS", 0.2)
    one = layer(entry("usr/x", size=100_000))
    reference = registry.put("tool", Saved((one,)))

    def answer(request: Request) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(one)))
        request.end_headers()
        for n in range(len(one)):
            request.wfile.write(one[n : n + 1])
            time.sleep(0.05)

    registry.answers[registry.blob_path("tool", one)] = answer
    options = PullOptions(env={"HOME": str(home)}, now=NOW)
    with pytest.raises(UnreachableRegistryError, match="less than 65,536 bytes in 0 seconds"):
        pull_image(store, reference, options)


@pytest.mark.parametrize("n_bytes", [1, 300])
def test_a_registry_that_begins_again_and_again_is_given_up(
    registry: SmallRegistry,
    store: ImageStore,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    n_bytes: int,
) -> None:
    monkeypatch.setattr(f"{BLOBS}._WAITS", (0.01, 0.01, 0.01))
    one = layer(entry("usr/x", size=100_000))
    reference = registry.put("tool", Saved((one,)))
    path = registry.blob_path("tool", one)

    def answer(request: Request) -> None:
        if len([seen for seen, _ in registry.seen if seen == path]) > 20:
            registry.answer(request)
        elif "Range" in request.headers and n_bytes == 1:
            request.say(206, one, Content_Range=f"bytes 7-{len(one) - 1}/{len(one)}")
        else:
            first = int(request.headers.get("Range", "bytes=0-")[6:-1])
            request.send_response(206 if first else 200)
            request.send_header("Content-Range", f"bytes {first}-{len(one) - 1}/{len(one)}")
            request.send_header("Content-Length", str(len(one) - first))
            request.end_headers()
            request.wfile.write(one[first : first + n_bytes])
            request.hang_up()

    registry.answers[path] = answer
    options = PullOptions(env={"HOME": str(home)}, now=NOW)
    with pytest.raises(UnreachableRegistryError, match="pull again to continue there"):
        pull_image(store, reference, options)


def test_sizes_that_no_disk_has_are_refused_before_the_download(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    registry.put("tool", Saved())
    data, _ = registry.documents["/v2/tool/manifests/1"]
    document = json.loads(data)
    document["layers"][0]["size"] = 1 << 60
    registry.put_manifest("tool", document, MANIFEST)
    assert "of free space, and the layers to download are" in refused(f"{registry.host}/tool:1")


def test_a_layer_without_a_size_is_refused(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    registry.put("tool", Saved())
    document = json.loads(registry.documents["/v2/tool/manifests/1"][0])
    del document["layers"][0]["size"]
    registry.put_manifest("tool", document, MANIFEST)
    assert "does not say its size" in refused(f"{registry.host}/tool:1")


# Manifests


def test_a_manifest_with_another_digest_is_refused(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    registry.put("tool", Saved())
    wrong = "sha256:" + "0" * 64
    path = f"/v2/tool/manifests/{wrong}"
    registry.documents[path] = registry.documents["/v2/tool/manifests/1"]
    said = refused(f"{registry.host}/tool@{wrong}", RegistryError)
    assert f"expected {wrong}: it was altered or damaged" in said


def test_indexes_that_nest_forever_are_refused(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    inner = registry.put_manifest("tool", {"mediaType": INDEX, "manifests": []}, INDEX, "x")
    for n in range(80):
        one = {"mediaType": INDEX, "digest": inner, "size": 1}
        document = {"mediaType": INDEX, "manifests": [one], "annotations": {"n": str(n)}}
        inner = registry.put_manifest("tool", document, INDEX)
    said = refused(f"{registry.host}/tool:1")
    assert "consists of more than 60 manifests and configurations; refused" in said


def test_an_index_of_countless_manifests_is_refused(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    listed = []
    for n in range(100):
        document = {"config": {"digest": f"sha256:{n:064x}"}, "layers": []}
        digest = registry.put_manifest("tool", document, MANIFEST, f"m{n}")
        config = json.dumps({"rootfs": {}, "os": "linux", "architecture": "pdp11"}).encode()
        registry.documents[f"/v2/tool/blobs/sha256:{n:064x}"] = (config, "x")
        listed.append({"mediaType": MANIFEST, "digest": digest})
    registry.put_manifest("tool", {"mediaType": INDEX, "manifests": listed}, INDEX)
    refused(f"{registry.host}/tool:1")
    assert len(registry.seen) < 70


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"{" * 5000, MANIFEST, "not a valid document of an image"),
        (b"[]", MANIFEST, "not a valid document of an image"),
        (b'{"config": {"digest": "md5:x"}, "layers": []}', MANIFEST, "expected sha256:"),
        (b" " * (5 << 20), MANIFEST, "sends a document of more than 4 MiB; refused"),
        (b"{}", "application/vnd.docker.distribution.manifest.v1+json", "of the first version"),
    ],
    ids=["deep", "list", "other digest", "large", "old"],
)
def test_manifests_that_are_none_are_refused(
    registry: SmallRegistry, refused: Callable[..., str], data: bytes, kind: str, message: str
) -> None:
    registry.documents["/v2/tool/manifests/1"] = (data, kind)
    assert message in refused(f"{registry.host}/tool:1")


def test_a_manifest_that_trickles_is_given_up(
    registry: SmallRegistry, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Patience(document_seconds=0.2)
    monkeypatch.setattr("proctor.environments.sandbox.roots.pull._PATIENCE", patience)

    def answer(request: Request) -> None:
        request.send_response(200)
        request.end_headers()
        for _ in range(100):
            request.wfile.write(b" ")
            time.sleep(0.05)

    registry.answers["/v2/tool/manifests/1"] = answer
    said = refused(f"{registry.host}/tool:1", UnreachableRegistryError)
    assert "a document took more than 0 seconds" in said


def test_what_is_not_there_is_said_with_the_registrys_words(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    said = refused(f"{registry.host}/tool:9", RegistryError)
    assert said.endswith('has no image 9 in tool ("not here")')


def test_words_of_a_registry_cannot_write_to_the_terminal(
    registry: SmallRegistry, refused: Callable[..., str]
) -> None:
    said = json.dumps({"errors": [{"message": "\x1b]0;evil\x07"}]}).encode()
    registry.answers["/v2/tool/manifests/1"] = lambda request: request.say(403, said)
    assert "\x1b" not in refused(f"{registry.host}/tool:1")


# Elsewhere


def test_a_registry_that_is_not_there_is_a_sentence(refused: Callable[..., str]) -> None:
    port = free_port()
    said = refused(f"127.0.0.1:{port}/tool:1", UnreachableRegistryError)
    assert said.startswith(f"127.0.0.1:{port}/tool:1: 127.0.0.1:{port}: cannot be reached: ")


def test_credentials_do_not_follow_a_redirect(registry: SmallRegistry, home: Path) -> None:
    one = layer(("usr/x", "x"))
    reference = registry.put("tool", Saved((one,)))
    docker_config(home, registry.host)
    with small_registry() as other:
        other.documents["/elsewhere"] = (one, "x")

        def answer(request: Request) -> None:
            if "Authorization" not in request.headers:
                request.say(401, WWW_Authenticate='Basic realm="x"')
            elif request.path == registry.blob_path("tool", one):
                request.say(307, Location=f"http://{other.host}/elsewhere")
            else:
                registry.answer(request)

        registry.answers = dict.fromkeys(registry.documents, answer)
        options = PullOptions(env={"HOME": str(home)}, now=NOW)
        pull_image(ImageStore(home / "cache"), reference, options)
        ((path, headers),) = other.seen
        assert path == "/elsewhere"
        assert "Authorization" not in headers
        assert "secret" not in json.dumps(headers)


def test_a_host_of_a_redirect_names_no_token_server(registry: SmallRegistry, home: Path) -> None:
    one = layer(("usr/x", "x"))
    reference = registry.put("tool", Saved((one,)))
    docker_config(home, registry.host)
    with small_registry() as other, small_registry() as evil:
        bearer = f'Bearer realm="http://{evil.host}/token"'
        evil.documents["/token"] = (b'{"token": "t"}', "application/json")
        other.answers["/x"] = lambda request: request.say(401, WWW_Authenticate=bearer)
        elsewhere = f"http://{other.host}/x"
        registry.answers[registry.blob_path("tool", one)] = lambda request: request.say(
            307, Location=elsewhere
        )
        options = PullOptions(env={"HOME": str(home)}, now=NOW)
        with pytest.raises(RegistryError, match="refuses access to tool"):
            pull_image(ImageStore(home / "cache"), reference, options)
        assert evil.seen == []


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://192.0.2.1/x", 'redirects to "http://192.0.2.1", which is not encrypted'),
        ("file:///etc/passwd", "redirects to"),
        ("https://ada:secret@192.0.2.1/x", "redirects to"),
        ("ftp://192.0.2.1/x", "redirects to"),
        (f"https://{'a' * 64}.invalid/x", "cannot be made: label"),
        ("https://xn--a-.invalid/x", "cannot be made: A-label must not end with a hyphen"),
    ],
)
def test_addresses_that_are_not_safe_are_refused(
    registry: SmallRegistry, refused: Callable[..., str], location: str, message: str
) -> None:
    reference = registry.put("tool", Saved())
    registry.answers["/v2/tool/manifests/1"] = lambda request: request.say(302, Location=location)
    assert message in refused(reference, RegistryError)


def test_a_redirect_in_a_circle_ends(registry: SmallRegistry, refused: Callable[..., str]) -> None:
    reference = registry.put("tool", Saved())
    path = "/v2/tool/manifests/1"
    registry.answers[path] = lambda request: request.say(302, Location=path)
    assert "redirects more than 5 times" in refused(reference, RegistryError)


@pytest.mark.parametrize(
    ("realm", "message"),
    [
        ("http://192.0.2.1/token", 'names the token server "http://192.0.2.1", which is not encr'),
        ("gopher://192.0.2.1/", "names the token server"),
        ("", "names the token server"),
        (f"https://{'a' * 64}.invalid/", "cannot be made: label"),
        ("https://xn--a-.invalid/", "names a token server that is no address"),
    ],
)
def test_passwords_go_to_no_token_server_without_encryption(
    registry: SmallRegistry, refused: Callable[..., str], home: Path, realm: str, message: str
) -> None:
    reference = registry.put("tool", Saved())
    docker_config(home, registry.host)
    challenge = f'Bearer realm="{realm}",service="s"'
    registry.answers["/v2/tool/manifests/1"] = lambda request: request.say(
        401, WWW_Authenticate=challenge
    )
    assert message in refused(reference, RegistryError)


@pytest.mark.parametrize(
    "answer",
    [b"no json", b"{}", b'{"token": "a\\r\\nb"}', b"x" * (2 << 20)],
    ids=["words", "nothing", "two lines", "large"],
)
def test_token_servers_that_send_no_token_are_refused(
    registry: SmallRegistry, refused: Callable[..., str], answer: bytes
) -> None:
    reference = registry.put("tool", Saved())
    challenge = f'Bearer realm="http://{registry.host}/token",service="s"'
    registry.answers["/v2/tool/manifests/1"] = lambda request: request.say(
        401, WWW_Authenticate=challenge
    )
    registry.answers["/token"] = lambda request: request.say(200, answer)
    refused(reference, RegistryError)


@pytest.mark.parametrize("name", ["Debian:12", "a/B", "host", "scratch", "a//b", "-x", "x:y:z"])
def test_names_that_no_registry_has_are_refused(refused: Callable[..., str], name: str) -> None:
    refused(name)
