"""Whatever a stranger hands over, nothing is written but the output, the cache and temporary files.

Reading changes neither what was handed over nor anything of the reader's. Seen by strace.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.cli.programs import command_line
from tests.ledger.hostile import JOB, Hostile, make_hostile, snapshot
from tests.ledger.watched import (
    Watched,
    environment_in,
    own_places,
    read_writes,
    strace_words,
    watch,
)

pytestmark = pytest.mark.usefixtures("strace")

type Command = list[object]
LEDGERS = ["honest", "ids", "paths", "links"]
HIGHEST_CODE = 7
"""Of `proctor gate`; a crash has a higher one."""
FORMS = ["bundle", "harbor", "aec-bench", "atif", "inspect", "parquet"]


@pytest.fixture
def hostile(tmp_path: Path) -> Hostile:
    return make_hostile(tmp_path)


@contextlib.contextmanager
def unchanged(hostile: Hostile) -> Iterator[None]:
    """See that what was handed over, and what is the reader's, stays as it is."""
    places = (hostile.outside, hostile.given)
    before = [snapshot(place) for place in places]
    yield
    for place, was in zip(places, before, strict=True):
        now = snapshot(place)
        assert now.keys() == was.keys()
        assert {name for name in was if now[name] != was[name]} == set()


def check(hostile: Hostile, commands: list[Command]) -> Watched:
    place = hostile.place
    with unchanged(hostile):
        watched = watch(place, commands)
    assert watched.outside(place / "out", *own_places(place)) == []
    assert "Traceback" not in watched.said
    assert max(watched.codes) <= HIGHEST_CODE
    return watched


def of_ledger(hostile: Hostile, name: str) -> Iterator[Command]:
    """Every command that reads a ledger."""
    ledger, out = hostile.ledger(name), hostile.place / "out" / name
    at: Command = ["--ledger", ledger]
    yield ["ledger", "verify", *at]
    yield ["ledger", "list", *at]
    yield ["ledger", "checkpoint", *at]
    yield ["check", ledger]
    yield ["check", JOB, "--policy", "leaderboard", *at]
    yield ["check", hostile.job, "--policy", "leaderboard", *at]
    yield ["board", *at]
    yield ["board", "--dataset", "binary", "--policy", "leaderboard", *at]
    yield ["report", JOB, *at, "--site", f"{out}-site"]
    yield ["search", "bash", *at]
    yield ["show", "1", *at]
    yield ["trace", "summary", JOB, *at]
    yield ["gate", JOB, *at, "--min-mean", "0.5"]
    for form in FORMS:
        yield ["export", "--format", form, *at, "-o", f"{out}-{form}"]


def of_job(hostile: Hostile) -> Iterator[Command]:
    """Every command that reads a job."""
    job, out = hostile.job, hostile.place / "out"
    yield ["audit", job]
    yield ["score", job]
    yield ["check", job, "--policy", "leaderboard"]
    yield ["report", job, "--site", out / "job-site"]
    yield ["trace", "summary", job]
    yield ["gate", job, "--min-mean", "0.5"]
    yield ["import", "harbor", job, "--ledger", out / "imported"]
    yield ["export", "--format", "harbor", "--ledger", out / "imported", "-o", out / "back"]


def of_bundles(hostile: Hostile) -> Iterator[Command]:
    for number, bundle in enumerate(hostile.bundles):
        yield ["check", bundle]
        yield ["import", "bundle", bundle, "--ledger", hostile.place / "out" / f"taken-{number}"]


def test_commands_on_hostile_ledgers_jobs_and_bundles_write_nothing_outside(
    hostile: Hostile,
) -> None:
    quick = {"verify", "list", "search", "--policy", "harbor", "audit", "import"}
    ledgers = [*of_ledger(hostile, "ids"), *of_ledger(hostile, "links")]
    commands = [
        *(each for each in [*ledgers, *of_job(hostile)] if quick.intersection(each)),
        *list(of_bundles(hostile))[:4],
    ]
    check(hostile, commands)


@pytest.mark.soak
@pytest.mark.parametrize("name", LEDGERS)
def test_every_command_on_every_ledger_writes_nothing_outside(hostile: Hostile, name: str) -> None:
    commands = list(of_ledger(hostile, name))
    watched = check(hostile, [*commands, *of_job(hostile), *of_bundles(hostile)])
    if name == "honest":
        assert (hostile.place / "out" / "honest-harbor" / JOB / "result.json").is_file()
        # Its trials have no trace for ATIF; all else is done.
        assert watched.codes[: len(commands)].count(2) == 1


def test_the_watcher_sees_what_is_written_through_a_link(hostile: Hostile) -> None:
    place = hostile.place
    (place / "out").mkdir()
    (place / "out" / "link").symlink_to(hostile.outside)
    target = place / "out" / "link" / "checkpoint"
    seen = watch(
        place, [["ledger", "checkpoint", "--ledger", hostile.ledger("honest"), "-o", target]]
    )
    assert seen.codes == [0]
    paths = {write.path for write in seen.outside(place / "out", *own_places(place))}
    assert str(hostile.outside / "checkpoint") in paths


@pytest.mark.parametrize(
    "name", ["links", *(pytest.param(n, marks=pytest.mark.soak) for n in ("ids", "paths", "job"))]
)
def test_the_viewer_writes_nothing_outside(hostile: Hostile, name: str) -> None:
    place, trace = hostile.place, hostile.place / "trace"
    looked_at = hostile.job if name == "job" else hostile.ledger(name)
    env = environment_in(place)
    words = command_line("view", looked_at, "--port", "0", "--json")
    with (
        unchanged(hostile),
        subprocess.Popen(
            [*strace_words(trace), *words],
            env=env,
            cwd=place / "out",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        said = ""
        while not said.endswith("}\n") and (line := process.stdout.readline()):
            said += line
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        try:
            if said:
                crawl(msgspec.json.decode(said)["address"])
        finally:
            for child in children:
                os.kill(int(child), signal.SIGINT)
        process.wait(30)
    seen = Watched([], "", list(read_writes(trace, place / "out", ["view"])))
    assert seen.outside(place / "out", *own_places(place)) == []


def crawl(address: str, most: int = 12) -> None:
    """Look at the pages that the first one leads to."""
    waiting, seen = ["/", "/search?q=bash", "/ledger", "/boards"], set[str]()
    with httpx.Client(base_url=address, timeout=30) as client:
        while waiting and len(seen) < most:
            path = waiting.pop(0)
            if path in seen:
                continue
            seen.add(path)
            answer = client.get(path)
            if "text/html" in answer.headers.get("content-type", ""):
                waiting += re.findall(r'href="(/[^"#]+)', answer.text)
