"""Images of a registry: resolved, downloaded, unpacked as layers, and used."""

import json
import os
import stat
import tarfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.environments.sandbox.roots.pull import Pulled, PullOptions, load_layers, pull_image
from proctor.environments.sandbox.roots.registry.client import StoppedError
from proctor.errors import ImageError, RegistryError, UnreachableRegistryError
from proctor.harbor.configs import EnvironmentConfig
from tests.environments.orders import order_of
from tests.environments.sandbox.registries import (
    Request,
    SmallRegistry,
    docker_config,
    query_of,
    small_registry,
)
from tests.environments.sandbox.rootfs import make_rootfs, pack
from tests.environments.sandbox.saved import ARCHITECTURE, Saved, directory, hard, layer, link
from tests.environments.sandbox.trees import entry
from tests.environments.sandboxes import running, said

NOW = datetime(2026, 1, 2, tzinfo=UTC)
OTHER = "arm64" if ARCHITECTURE == "amd64" else "amd64"
type Pull = Callable[..., Pulled]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    return ImageStore()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def pull(store: ImageStore, home: Path) -> Pull:
    def run(reference: str, **more: object) -> Pulled:
        env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        return pull_image(store, reference, PullOptions(env=env, now=NOW, **more))  # type: ignore[arg-type]

    return run


def find_whiteouts(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if stat.S_ISCHR(path.lstat().st_mode) and path.lstat().st_rdev == 0
    }


def find_opaque(root: Path) -> set[str]:
    name = "trusted.overlay.opaque" if os.geteuid() == 0 else "user.overlay.opaque"
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_dir() and not path.is_symlink() and name in os.listxattr(path)
    }


def test_an_image_is_pinned_by_its_manifest_and_has_its_settings(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    run = {"Env": ["A=b", "PATH=/x"], "WorkingDir": "/app", "User": "ada", "Entrypoint": ["e"]}
    saved = Saved((layer(("usr/x", "x")), layer(("usr/y", "y"))), "gzip", run)
    pulled = pull(registry.put("org/tool", saved))
    image = pulled.image
    manifest, _ = registry.documents["/v2/org/tool/manifests/1"]
    digest = next(
        path.rpartition(":")[2]
        for path, (data, _) in registry.documents.items()
        if data == manifest and "sha256:" in path
    )
    assert image.pin == f"{registry.host}/org/tool:1@sha256:{digest}"
    assert (image.image_id, image.source) == (saved.image_id, "registry")
    assert (image.env, image.workdir, image.user) == ({"A": "b", "PATH": "/x"}, "/app", "ada")
    assert (image.entrypoint, image.notes) == (("e",), ())
    assert store.find(f"{registry.host}/org/tool:1") == image
    top, bottom = store.lowers(image)
    assert ((top / "usr/y").read_text(), (bottom / "usr/x").read_text()) == ("y", "x")
    assert pulled.n_layers == 2
    assert list(store.downloads.iterdir()) == []


def test_layers_are_stored_once_for_all_images(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    base = layer(("usr/x", "x" * 5000))
    one = pull(registry.put("one", Saved((base, layer(("usr/1", "1")))))).image
    two = pull(registry.put("two", Saved((base, layer(("usr/2", "2")))))).image
    assert one.layers[0] == two.layers[0]
    blob = registry.blob_path("two", base)
    assert blob not in [path for path, _ in registry.seen]
    store.remove(one.name)
    assert sorted(path.name for path in (store.layer("x").parent).iterdir()) == sorted(two.layers)
    store.remove(two.name)
    assert list(store.layer("x").parent.iterdir()) == []


def test_a_pull_of_the_same_image_downloads_nothing(registry: SmallRegistry, pull: Pull) -> None:
    reference = registry.put("tool", Saved())
    pull(reference)
    again = pull(reference)
    assert (again.is_new, again.n_layers, again.n_bytes) == (False, 0, 0)


def test_a_tag_that_moved_moves_the_name_and_its_old_layers_go(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    reference = registry.put("tool", Saved((layer(("usr/x", "old")),)))
    old = pull(reference).image
    registry.put("tool", Saved((layer(("usr/x", "new")),)))
    moved = pull(reference)
    assert moved.before == old
    assert (store.lowers(moved.image)[0] / "usr/x").read_text() == "new"
    assert not store.layer(old.layers[0]).exists()


def test_a_digest_names_an_image_whatever_its_tag_means(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    reference = registry.put("tool", Saved((layer(("usr/x", "old")),)))
    old = pull(reference).image
    registry.put("tool", Saved((layer(("usr/x", "new")),)))
    store.remove(reference)
    again = pull(f"{reference}@sha256:{old.digest}", name=reference).image
    assert (again.name, again.digest) == (old.name, old.digest)


@pytest.mark.parametrize("packing", ["", "gzip", "zstd"])
def test_layers_may_be_packed(
    registry: SmallRegistry, pull: Pull, store: ImageStore, packing: str
) -> None:
    image = pull(registry.put("tool", Saved((layer(("usr/x", "x")),), packing))).image
    assert (store.lowers(image)[0] / "usr/x").read_text() == "x"


def test_an_index_has_an_image_for_each_platform(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    ours = Saved((layer(("usr/x", "ours")),))
    theirs = Saved((layer(("usr/x", "theirs")),), architecture=OTHER)
    reference = registry.put("tool", theirs, ours, as_index=True)
    assert (store.lowers(pull(reference).image)[0] / "usr/x").read_text() == "ours"
    other = pull(reference, platform=f"linux/{OTHER}", name="other").image
    assert (store.lowers(other)[0] / "usr/x").read_text() == "theirs"
    assert other.notes[0].startswith(f"is for linux/{OTHER}; this machine is linux/")
    with pytest.raises(ImageError, match="has no image for linux/s390x, but for linux/amd64, "):
        pull(reference, platform="linux/s390x")


def test_dockers_own_media_types_are_known(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    registry.put("tool", Saved())
    data, _ = registry.documents["/v2/tool/manifests/1"]
    docker = "application/vnd.docker.distribution.manifest.v2+json"
    digest = registry.put_manifest("tool", {**json.loads(data), "mediaType": docker}, docker)
    platform = {"os": "linux", "architecture": ARCHITECTURE}
    listed = "application/vnd.docker.distribution.manifest.list.v2+json"
    one = {"mediaType": docker, "digest": digest, "size": 1, "platform": platform}
    registry.put_manifest("tool", {"mediaType": listed, "manifests": [one]}, listed, tag="list")
    assert pull(f"{registry.host}/tool:list").image.digest == digest[7:]


# Layers as directories of an overlay


def test_what_a_layer_removes_becomes_whiteouts_and_opaque_directories(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    low = layer(directory("usr"), directory("d"), ("d/a", "a"), ("d/b", "b"), ("e/x", "x"))
    high = layer(("d/.wh.a", ""), directory("e"), ("e/.wh..wh..opq", ""), ("e/new", "n"))
    image = pull(registry.put("tool", Saved((low, high)))).image
    top = store.lowers(image)[0]
    assert find_whiteouts(top) == {"d/a"}
    assert find_opaque(top) == {"e"}
    assert (top / "e/new").read_text() == "n"


def test_a_whiteout_hides_lower_layers_only(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    low = layer(directory("usr"), ("d/a", "a"), ("f", "old"), ("g/deep/x", "x"))
    high = layer(
        *(("d/new", "n"), (".wh.d", ""), (".wh.f", ""), ("f", "new")),
        *(("g/deep/.wh.x", ""), (".wh.g", ""), (".wh.absent", "")),
    )
    top = store.lowers(pull(registry.put("tool", Saved((low, high)))).image)[0]
    assert (find_whiteouts(top), find_opaque(top)) == ({"g"}, {"d"})
    assert (top / "f").read_text() == "new"
    assert not (top / "absent").exists()


def test_a_directory_after_its_whiteout_hides_what_was_there(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    low = layer(directory("usr"), ("d/a", "a"), ("e/a", "a"))
    high = layer((".wh.d", ""), directory("d"), (".wh.e", ""), ("e/b", "b"))
    top = store.lowers(pull(registry.put("tool", Saved((low, high)))).image)[0]
    assert (find_whiteouts(top), find_opaque(top)) == (set(), {"d", "e"})


def test_parents_and_targets_of_hard_links_come_from_below(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    low = layer(
        directory("usr"),
        directory("d", mode=0o2750),
        ("d/a", "words"),
        directory("lib", mode=0o711),
    )
    high = layer(("d/new", "n"), hard("lib/b", "d/a"), ("d/.wh.a", ""))
    top = store.lowers(pull(registry.put("tool", Saved((low, high)))).image)[0]
    assert stat.S_IMODE((top / "d").stat().st_mode) == 0o2750
    assert stat.S_IMODE((top / "lib").stat().st_mode) == 0o711
    assert (top / "lib/b").read_text() == "words"
    assert find_whiteouts(top) == {"d/a"}


def test_a_file_below_a_link_of_a_lower_layer_goes_where_it_leads(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    low = layer(directory("usr"), directory("usr/bin"), link("bin", "usr/bin"))
    high = layer(("bin/tool", "t"))
    top = store.lowers(pull(registry.put("tool", Saved((low, high)))).image)[0]
    assert (top / "usr/bin/tool").read_text() == "t"
    assert not (top / "bin").is_symlink()


def test_an_opaque_top_leaves_out_the_layers_below(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    layers = (layer(("usr/x", "x")), layer((".wh..wh..opq", ""), ("usr/y", "y")))
    (top,) = store.lowers(pull(registry.put("tool", Saved(layers))).image)
    assert sorted(path.name for path in (top / "usr").iterdir()) == ["y"]


def test_devices_are_left_out_and_said(registry: SmallRegistry, pull: Pull) -> None:
    device = entry("dev/sda", tarfile.BLKTYPE, devmajor=8)
    image = pull(registry.put("tool", Saved((layer(("usr/x", "x"), device),)))).image
    assert image.notes == ("devices and pipes left out: 1 entry",)


def test_attributes_of_programs_are_kept_and_those_of_overlays_are_not(
    registry: SmallRegistry, pull: Pull, store: ImageStore, tmp_path: Path
) -> None:
    made = tmp_path / "x.tar"
    with tarfile.open(made, "w", format=tarfile.PAX_FORMAT) as tar:
        member = entry("usr/x")
        member.pax_headers = {
            "SCHILY.xattr.user.words": "a\udcffb",
            "SCHILY.xattr.user.overlay.redirect": "/etc",
            "SCHILY.xattr.trusted.overlay.redirect": "/etc",
        }
        tar.addfile(member)
    image = pull(registry.put("tool", Saved((made.read_bytes(),)))).image
    path = store.lowers(image)[0] / "usr/x"
    names = [name for name in os.listxattr(path) if not name.startswith("security.")]
    assert names == ["user.words"]
    assert os.getxattr(path, "user.words") == b"a\xffb"
    assert image.notes == (
        "attributes user.* left out: 1 entry",
        "attributes trusted.* left out: 1 entry",
    )


def test_show_names_the_layers(registry: SmallRegistry, pull: Pull, store: ImageStore) -> None:
    image = pull(registry.put("tool", Saved((layer(("usr/x", "xyz")),)))).image
    ((chain, facts),) = load_layers(store, image)
    assert (chain, facts.size, facts.n_entries) == (image.layers[0], 3, 2)


# Trials


async def test_a_sandbox_runs_on_the_layers_without_a_copy(
    registry: SmallRegistry, pull: Pull, store: ImageStore, tmp_path: Path
) -> None:
    root = make_rootfs(tmp_path / "root")
    bottom = pack(root, tmp_path / "root.tar").read_bytes()
    layers = [bottom, *(layer((f"srv/{n}", str(n)), ("srv/last", str(n))) for n in range(1, 40))]
    layers.append(layer(("srv/.wh.7", ""), directory("etc")))
    run = {"Env": ["WORD=there"], "WorkingDir": "/srv"}
    name = pull(registry.put("tool", Saved(tuple(layers), "gzip", run))).image.name
    config = EnvironmentConfig(kwargs={"base": name})
    async with running(order_of(tmp_path, config=config)) as sandbox:
        names = {*map(str, range(1, 40)), "last"} - {"7"}
        assert set((await said(sandbox, "ls")).split()) == names
        assert await said(sandbox, "cat last") == "39"
        assert "WORD=there" in await said(sandbox, "env")
        assert "root:x:0:0" in await said(sandbox, "cat /etc/passwd")
        await said(sandbox, "rm last; touch new")
        assert set((await said(sandbox, "ls")).split()) == names - {"last"} | {"new"}
    top = store.lowers(store.load_base(name))[0]
    assert find_whiteouts(top) == {"srv/7"}


# Connections


def test_a_connection_that_breaks_is_resumed(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    big = layer(("usr/x", "x"), entry("usr/y", size=1_000_000))
    saved = Saved((big,))
    reference = registry.put("tool", saved)
    path = registry.blob_path("tool", big)

    def break_off(request: Request) -> None:
        if "Range" in request.headers:
            registry.answer(request)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(big)))
        request.end_headers()
        request.wfile.write(big[:400_000])
        request.hang_up()

    registry.answers[path] = break_off
    image = pull(reference).image
    ranges = [headers.get("Range") for seen, headers in registry.seen if seen == path]
    assert ranges[0] is None
    assert str(ranges[1]).startswith("bytes=")
    assert (store.lowers(image)[0] / "usr/y").stat().st_size == 1_000_000


def test_the_next_pull_goes_on_where_one_broke_off(
    registry: SmallRegistry, pull: Pull, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.environments.sandbox.roots.registry.blobs._WAITS", ())
    big = layer(entry("usr/y", size=1_000_000))
    reference = registry.put("tool", Saved((big,)))
    path = registry.blob_path("tool", big)

    def break_off(request: Request) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(big)))
        request.end_headers()
        request.wfile.write(big[:400_000])
        request.hang_up()

    registry.answers[path] = break_off
    with pytest.raises(UnreachableRegistryError, match="pull again to continue there"):
        pull(reference)
    assert store.find(reference) is None
    (left,) = store.downloads.iterdir()
    size = left.stat().st_size
    assert 0 < size <= 400_000
    del registry.answers[path]
    pull(reference)
    assert registry.seen[-1][1]["Range"] == f"bytes={size}-"


def test_a_part_that_is_wrong_is_downloaded_again(
    registry: SmallRegistry, pull: Pull, store: ImageStore
) -> None:
    big = layer(entry("usr/y", size=100_000))
    reference = registry.put("tool", Saved((big,)))
    with store.changing():
        digest = registry.blob_path("tool", big).rpartition(":")[2]
        (store.downloads / f"{digest}.part").write_bytes(b"wrong" * 100)
    assert pull(reference).n_layers == 1


def test_a_pull_can_be_stopped(registry: SmallRegistry, pull: Pull, store: ImageStore) -> None:
    reference = registry.put("tool", Saved())
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(StoppedError):
        pull(reference, stopped=stopped)
    assert store.find(reference) is None


@pytest.mark.parametrize("what", ["manifests/1", "blobs"])
def test_a_registry_that_is_silent_does_not_keep_a_pull_from_being_stopped(
    registry: SmallRegistry, pull: Pull, store: ImageStore, what: str
) -> None:
    one = layer(("usr/x", "x"))
    reference = registry.put("tool", Saved((one,)))
    path = registry.blob_path("tool", one) if what == "blobs" else f"/v2/tool/{what}"
    stopped, may_end = threading.Event(), threading.Event()

    def be_silent(_: Request) -> None:
        threading.Timer(0.3, stopped.set).start()
        may_end.wait(60)

    registry.answers[path] = be_silent
    began = time.monotonic()
    try:
        with pytest.raises(StoppedError):
            pull(reference, stopped=stopped)
        assert time.monotonic() - began < 10
    finally:
        may_end.set()
    assert store.find(reference) is None


def test_progress_is_shown_to_the_last_byte(registry: SmallRegistry, pull: Pull) -> None:
    shown: list[tuple[int, int]] = []
    big = layer(entry("usr/y", size=500_000))
    pull(registry.put("tool", Saved((big,))), show=lambda done, total: shown.append((done, total)))
    assert shown[-1] == (len(big), len(big))


def test_layers_are_downloaded_at_the_same_time(registry: SmallRegistry, pull: Pull) -> None:
    saved = Saved(tuple(layer((f"usr/{number}", str(number))) for number in range(4)))
    reference = registry.put("tool", saved)
    first, *others = (registry.blob_path("tool", data) for data in saved.packed)
    last_is_asked_for = threading.Event()
    was_in_time: list[bool] = []

    def answer_late(request: Request) -> None:
        was_in_time.append(last_is_asked_for.wait(timeout=20))
        registry.answer(request)

    def answer_last(request: Request) -> None:
        last_is_asked_for.set()
        registry.answer(request)

    registry.answers = {first: answer_late, others[-1]: answer_last}
    assert pull(reference).n_layers == 4
    assert was_in_time == [True]


def test_passing_failures_are_tried_again(registry: SmallRegistry, pull: Pull) -> None:
    reference = registry.put("tool", Saved())
    # No date has that year.
    asked = ["0.01", "Mon, 16 Nov 99999999999 10:00:00 GMT"]

    def answer(request: Request) -> None:
        if asked:
            request.say(503, Retry_After=asked.pop())
        else:
            registry.answer(request)

    registry.answers["/v2/tool/manifests/1"] = answer
    pull(reference)
    assert asked == []


# Mirrors


def configure(home: Path, text: str) -> None:
    (home / ".config" / "proctor").mkdir(parents=True)
    (home / ".config" / "proctor" / "registries.toml").write_text(text, encoding="utf-8")


def test_a_mirror_is_asked_first_and_the_registry_for_what_it_lacks(
    registry: SmallRegistry, pull: Pull, home: Path
) -> None:
    with small_registry() as mirror:
        mirrors = f'["http://127.0.0.1:1", "http://{mirror.host}/cached"]'
        configure(home, f'[registries."{registry.host}"]\nmirrors = {mirrors}\n')
        reference = registry.put("tool", Saved())
        mirror.put("cached/tool", Saved((layer(("usr/m", "m")),)))
        image = pull(reference).image
        assert image.name == reference
        assert registry.seen == []
        registry.put("own", Saved())
        assert pull(f"{registry.host}/own:1").is_new


def test_docker_hub_is_the_default_and_can_be_mirrored(
    registry: SmallRegistry, pull: Pull, home: Path, store: ImageStore
) -> None:
    configure(home, f'[registries."docker.io"]\nmirrors = ["http://{registry.host}"]\n')
    registry.put("library/debian", Saved(), tag="12")
    assert pull("debian:12").image.name == "debian:12"
    registry.put("org/tool", Saved(), tag="latest")
    assert pull("docker.io/org/tool").image.name == "org/tool:latest"
    assert store.find("org/tool") is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "registries.toml: not a configuration of registries"),
        ('[registries."a.b"]\nmirror = []', "registries.toml: not a configuration of registries"),
        ('[registries."a.b"]\nmirrors = ["a.b"]', r"'a\.b' is a mirror of a\.b; expected https"),
        ('[registries."a.b"]\nmirrors = ["https://u:p@a.b"]', "is a mirror of"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused(
    pull: Pull, home: Path, text: str, message: str
) -> None:
    configure(home, text)
    with pytest.raises(ImageError, match=message):
        pull("debian:12")


# Users


def test_a_password_is_sent_after_it_was_asked_for(
    registry: SmallRegistry, pull: Pull, home: Path
) -> None:
    reference = registry.put("tool", Saved())
    docker_config(home, registry.host)

    def answer(request: Request) -> None:
        if request.headers.get("Authorization") == "Basic YWRhOnNlY3JldA==":
            registry.answer(request)
        else:
            request.say(401, WWW_Authenticate='Basic realm="x"')

    registry.answers = dict.fromkeys(registry.documents, answer)
    pull(reference)
    assert "Authorization" not in registry.seen[0][1]


def test_a_token_is_fetched_for_pulling_alone(
    registry: SmallRegistry, pull: Pull, home: Path
) -> None:
    reference = registry.put("tool", Saved())
    docker_config(home, f"https://{registry.host}/v1/")

    def answer(request: Request) -> None:
        if request.headers.get("Authorization") == "Bearer t0ken":
            registry.answer(request)
        else:
            realm = f'Bearer realm="http://{registry.host}/token",service="s",scope="x:y:push"'
            request.say(401, WWW_Authenticate=realm)

    registry.answers = dict.fromkeys(registry.documents, answer)
    registry.answers["/token"] = lambda request: request.say(200, b'{"token": "t0ken"}')
    pull(reference)
    ((path, headers),) = [one for one in registry.seen if one[0].startswith("/token")]
    assert query_of(path) == {"service": ["s"], "scope": ["repository:tool:pull"]}
    assert headers["Authorization"] == "Basic YWRhOnNlY3JldA=="


def test_no_credentials_are_a_sentence(registry: SmallRegistry, pull: Pull) -> None:
    reference = registry.put("tool", Saved())
    said = b'{"errors": [{"message": "who are you?"}]}'
    registry.answers["/v2/tool/manifests/1"] = lambda request: request.say(
        401, said, WWW_Authenticate='Basic realm="x"'
    )
    with pytest.raises(RegistryError, match=r"refuses access to tool \(.who are you\?.\); if it"):
        pull(reference)


def test_an_imported_image_keeps_its_name_until_it_is_pulled(
    registry: SmallRegistry, pull: Pull, store: ImageStore, tmp_path: Path
) -> None:
    (tmp_path / "tree" / "usr").mkdir(parents=True)
    reference = registry.put("tool", Saved())
    mine = store.import_image(reference, tmp_path / "tree", Known({}), now=NOW).image
    assert pull(reference).before == mine
