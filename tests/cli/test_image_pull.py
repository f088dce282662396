"""`proctor image pull`, and the images that `run` pulls by itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.environments.sandbox.roots.images import ImageStore
from tests.cli.programs import Proctor, run_child
from tests.cli.test_run import make_task
from tests.environments.sandbox.registries import SmallRegistry, free_port
from tests.environments.sandbox.saved import Saved, layer
from tests.job.git_server import git_server
from tests.job.test_dataset_fetch import Site

pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("empty_cache")]


def publish(registry: SmallRegistry, bottom: bytes, words: str) -> str:
    run = {"Env": ["WORDS=of-the-image"], "WorkingDir": "/srv"}
    return registry.put("tool", Saved((bottom, layer(("srv/words", words))), "gzip", run))


def task_from(directory: Path, reference: str) -> Path:
    task = make_task(directory)
    (task / "environment" / "Dockerfile").write_text(f"FROM {reference}\n", encoding="utf-8")
    script = 'test "$(cat /srv/words) $WORDS" = "first of-the-image" && reward=1 || reward=0\n'
    (task / "tests" / "test.sh").write_text(
        f"{script}echo $reward > /logs/verifier/reward.txt\n", encoding="utf-8"
    )
    return task


def state_of(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "jobs" / "one" / "proctor.json").read_text())


def pins_of(tmp_path: Path) -> set[str]:
    records = (tmp_path / "jobs" / "one").glob("*/record.json")
    return {json.loads(path.read_text())["environment"]["runtime_image"] for path in records}


def test_an_image_is_pulled_shown_and_removed(
    proctor: Proctor, registry: SmallRegistry, bottom: bytes
) -> None:
    reference = publish(registry, bottom, "first")
    ran = proctor("image", "pull", reference)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{reference}: pulled, 2 layers, ")
    assert ran.out.splitlines()[1].startswith(f"  {reference}@sha256:")
    again = proctor("image", "pull", reference)
    assert again.out.startswith(f"{reference}: nothing to do, this image is already in the store")
    assert proctor("image", "pull", "--offline", reference).code == 0
    offline = ("image", "pull", "--offline", reference, "--platform")
    assert proctor(*offline, "linux/amd64").code == 0
    other = proctor(*offline, "linux/arm64")
    assert (other.code, other.out) == (2, "")
    assert "in the image store for linux/amd64, not for linux/arm64, and --offline" in other.err
    shown = proctor("image", "list", reference).out.splitlines()
    assert shown[0].endswith(", from registry")
    assert "  env WORDS=of-the-image" in shown
    assert [line.split()[0] for line in shown[-2:]] == ["layer", "layer"]
    document = json.loads(proctor("image", "list", reference, "--json").out)
    assert (len(document["layers"]), document["image"]["workdir"]) == (2, "/srv")
    assert proctor("image", "list").out.count(reference) == 1
    assert proctor("image", "prune", reference).out.startswith(f"{reference}: removed, ")
    gone = proctor("image", "pull", "--offline", reference)
    assert (gone.code, gone.out) == (2, "")
    assert "not in the image store, and --offline forbids a pull" in gone.err


def test_a_moved_tag_is_said(proctor: Proctor, registry: SmallRegistry, bottom: bytes) -> None:
    reference = publish(registry, bottom, "first")
    proctor("image", "pull", reference)
    publish(registry, bottom, "second")
    ran = proctor("image", "pull", reference)
    assert f"the name referred to {reference}@sha256:" in ran.out


def run_one(proctor: Proctor, tmp_path: Path, *more: object) -> Any:
    jobs = ("-o", tmp_path / "jobs", "--job-name", "one", "-q", "--no-ledger")
    return proctor("run", "-p", tmp_path / "task", "-a", "nop", *jobs, *more)


def test_one_command_runs_a_task_of_a_dataset_with_its_own_image(
    proctor: Proctor,
    registry: SmallRegistry,
    bottom: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reference = publish(registry, bottom, "first")
    with git_server(tmp_path) as server:
        site = Site(tmp_path, server)
        task = task_from(site.repository.tree / "tasks" / "one", reference)
        # The image that it names, not its Dockerfile.
        (task / "environment" / "Dockerfile").write_text("FROM absent\n")
        (task / "task.toml").write_text(f'[environment]\ndocker_image = "{reference}"\n')
        commit = site.repository.commit("one has an image")
        site.register(commit, "one")
        monkeypatch.setenv("XDG_CACHE_HOME", site.host["XDG_CACHE_HOME"])
        monkeypatch.setenv("PROCTOR_REGISTRY", f"{server.url}/registry.json")
        jobs = ("-o", tmp_path / "jobs", "--job-name", "one", "--no-ledger")
        ran = proctor("run", "-d", "set@1.0", "-a", "nop", *jobs)
    assert ran.code == 0, ran.err
    assert "nop__set: 1 run, 1 scored" in ran.out
    (result,) = (tmp_path / "jobs" / "one").glob("*/result.json")
    assert json.loads(result.read_text())["verifier_result"]["rewards"] == {"reward": 1.0}
    (pin,) = pins_of(tmp_path)
    assert pin.startswith(f"{reference}@sha256:")


def test_run_pulls_the_image_of_from_and_records_its_digest(
    proctor: Proctor, registry: SmallRegistry, bottom: bytes, tmp_path: Path
) -> None:
    reference = publish(registry, bottom, "first")
    task_from(tmp_path / "task", reference)
    ran = run_one(proctor, tmp_path)
    assert ran.code == 0, ran.err
    image = ImageStore().find(reference)
    assert image is not None
    assert pins_of(tmp_path) == {image.pin}
    assert state_of(tmp_path)["images"] == {reference: image.digest}
    (result,) = (tmp_path / "jobs" / "one").glob("*/result.json")
    assert json.loads(result.read_text())["verifier_result"]["rewards"] == {"reward": 1.0}
    assert not list((tmp_path / "jobs" / "one").glob("*/findings.json")) or all(
        "base-substituted" not in path.read_text()
        for path in (tmp_path / "jobs" / "one").glob("*/findings.json")
    )


def test_run_pulls_all_images_of_a_dockerfile_and_records_them(
    proctor: Proctor, registry: SmallRegistry, bottom: bytes, tmp_path: Path
) -> None:
    """The second has two files and no system, as images of single programs have."""
    first = publish(registry, bottom, "none")
    second = registry.put("files", Saved((layer(("words", "first"), ("uv", "u")),), "gzip", {}))
    task = task_from(tmp_path / "task", first)
    (task / "environment" / "Dockerfile").write_text(
        f"FROM {first} AS one\nRUN echo x > /x\nFROM {first}\n"
        f"COPY --from=one /x /x\nCOPY --from={second} /words /uv /srv/\n"
    )
    shown = proctor("run", "-p", tmp_path / "task", "-a", "nop", "--dry-run", "--json")
    assert json.loads(shown.out)["tasks"][0]["images"] == [first, second]
    lacking = run_one(proctor, tmp_path, "--base", "host", "--job-name", "lacking")
    assert f"COPY: --from={second}: not in the image store, and no other image" in (
        lacking.out + lacking.err
    )
    ran = run_one(proctor, tmp_path)
    assert ran.code == 0, ran.err
    images = [ImageStore().find(name) for name in (first, second)]
    pins = [image.pin for image in images if image is not None]
    assert pins_of(tmp_path) == {", ".join(pins)}
    assert list(state_of(tmp_path)["images"]) == [first, second]
    (result,) = (tmp_path / "jobs" / "one").glob("*/result.json")
    assert json.loads(result.read_text())["verifier_result"]["rewards"] == {"reward": 1.0}


def test_run_pulls_a_docker_image(
    proctor: Proctor, registry: SmallRegistry, bottom: bytes, tmp_path: Path
) -> None:
    reference = publish(registry, bottom, "first")
    task = task_from(tmp_path / "task", "elsewhere.invalid/x:1")
    text = (task / "task.toml").read_text()
    (task / "task.toml").write_text(f'{text}\n[environment]\ndocker_image = "{reference}"\n')
    ran = run_one(proctor, tmp_path)
    assert ran.code == 0, ran.err
    assert len(pins_of(tmp_path)) == 1


def test_a_tag_that_moves_does_not_change_a_job(
    proctor: Proctor, registry: SmallRegistry, bottom: bytes, tmp_path: Path
) -> None:
    reference = publish(registry, bottom, "first")
    task_from(tmp_path / "task", reference)
    # In a process that ends: an image in use is not removed.
    assert run_one(run_child, tmp_path).code == 0
    pins = pins_of(tmp_path)
    publish(registry, bottom, "second")
    assert proctor("image", "prune", reference).code == 0
    (trial,) = (path.parent for path in (tmp_path / "jobs" / "one").glob("*/result.json"))
    (trial / "result.json").unlink()
    resumed = proctor("resume", tmp_path / "jobs" / "one", "-q")
    assert resumed.code == 0, resumed.err
    assert pins_of(tmp_path) == pins
    proctor("image", "pull", reference)
    (trial / "result.json").unlink()
    refused = proctor("resume", tmp_path / "jobs" / "one", "-q")
    assert refused.code == 2
    assert "the job was begun on sha256:" in refused.err
    remedy = refused.err.partition("run `proctor ")[2].partition("`")[0].split()
    assert proctor(*remedy).code == 0
    assert proctor("resume", tmp_path / "jobs" / "one", "-q").code == 0
    assert pins_of(tmp_path) == pins


def test_a_registry_that_cannot_be_reached_is_said_with_what_base_would_do(
    proctor: Proctor, tmp_path: Path
) -> None:
    reference = f"127.0.0.1:{free_port()}/tool:1"
    task_from(tmp_path / "task", reference)
    for more, reason in (
        ((), "cannot be reached: Connection refused"),
        (("--offline",), "not in the image store"),
    ):
        ran = run_one(proctor, tmp_path, *more)
        assert ran.code == 2
        assert f"1 of 1 images that the tasks need could not be obtained: {reference}: " in ran.err
        assert reason in ran.err
        assert "--base host runs these tasks on this machine's own system instead" in ran.err
        assert not (tmp_path / "jobs").exists()
    assert run_one(proctor, tmp_path, "--dry-run").code == 0
    ran = run_one(proctor, tmp_path, "--base", "host")
    assert ran.code == 0, ran.err
    (found,) = (tmp_path / "jobs" / "one").glob("*/findings.json")
    assert "base-substituted" in found.read_text()


@pytest.mark.parametrize("base", [None, "host"])
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ("-e", "docker"),
            "--offline cannot be combined with -e docker, which pulls images by itself",
        ),
        (
            ("--builder", "buildah"),
            "--offline cannot be combined with --builder buildah, which pulls",
        ),
        (
            ("--builder", "docker"),
            "--offline cannot be combined with --builder docker, which pulls",
        ),
    ],
)
def test_offline_is_refused_where_another_program_pulls(
    proctor: Proctor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    base: str | None,
    more: tuple[str, ...],
    said: str,
) -> None:
    if base is not None:
        monkeypatch.setenv("PROCTOR_BASE", base)
    make_task(tmp_path / "task")
    ran = run_one(proctor, tmp_path, "--offline", *more)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    ran = proctor("task", "try", tmp_path / "task", "--offline", *more)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ALL_PROXY", "socks5://ada:hidden@127.0.0.1:9", "a SOCKS proxy is not supported; expec"),
        ("HTTPS_PROXY", "ftp://127.0.0.1:9", "HTTPS_PROXY=ftp://127.0.0.1:9: cannot be used"),
        ("HTTPS_PROXY", f"http://{'a' * 64}.invalid:1", "cannot be made: label empty or too long"),
        ("NO_PROXY", "http://x:y:z", "NO_PROXY=http://x:y:z: cannot be used: Invalid port"),
        ("SSL_CERT_FILE", "/nonexistent", "SSL_CERT_FILE=/nonexistent: cannot be used: No such"),
        ("SSL_CERT_FILE", "/etc/passwd", "SSL_CERT_FILE=/etc/passwd: cannot be used: "),
        ("SSLKEYLOGFILE", "/nonexistent/x", "SSLKEYLOGFILE=/nonexistent/x"),
    ],
)
def test_variables_of_proxies_and_certificates_that_are_wrong_are_a_sentence(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    ran = proctor("image", "pull", "registry.invalid/tool")
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("proctor: registry.invalid/tool:latest: registry.invalid: ")
    assert said in line
    assert "hidden" not in line


@pytest.mark.parametrize("host", [f"{'a' * 64}.invalid", "xn--a-.invalid"])
def test_a_name_that_no_host_can_have_is_a_sentence(proctor: Proctor, host: str) -> None:
    ran = proctor("image", "pull", f"{host}/tool")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "the name of a host" in ran.err
