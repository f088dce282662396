"""harbor's agents where harbor is missing or is another, and what is not loaded without them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import proctor
from tests.cli.programs import ROOT, Ran, environment

TASK = ROOT / "tests" / "data" / "harbor" / "tasks" / "binary" / "pass-simple"
SITE = next(Path(path) for path in sys.path if Path(path, "pydantic").is_dir())
THEIRS = ("harbor", "litellm")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """What is installed here, without harbor."""
    place = tmp_path / "site"
    place.mkdir()
    for path in SITE.iterdir():
        if path.name != "harbor" and not path.name.startswith("harbor-"):
            (place / path.name).symlink_to(path)
    return place


def run_with(site: Path, *arguments: object, program: str = "-m proctor") -> Ran:
    """Run proctor with nothing but what lies in this directory."""
    path = f"{Path(proctor.__file__).parent.parent}:{site}:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-S", *program.split(" ", 1), *map(str, arguments)],
        env=environment() | {"PYTHONPATH": path},
        cwd=site.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_without_harbor_the_line_that_installs_it_is_said_and_nothing_is_made(site: Path) -> None:
    ran = run_with(site, "run", "-p", TASK, "-a", "terminus-2", "-m", "openai/gpt-4o")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.strip() == (
        "proctor: agent 'terminus-2' is one of harbor's, which is not installed; run: "
        "pip install 'proctor[harbor]'"
    )
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_another_harbor_is_named_and_the_record_says_which(site: Path) -> None:
    (site / "harbor").symlink_to(SITE / "harbor")
    told = site / "harbor-0.99.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: harbor\nVersion: 0.99.0\n")
    where = ("-o", "jobs", "--job-name", "job", "-e", "null", "-q", "-y", "--no-ledger")
    ran = run_with(site, "run", "-p", TASK, "-a", "claude-code", "--ak", "version=1.2.3", *where)
    assert ran.code == 0, ran.err
    log = (site.parent / "jobs" / "job" / "job.log").read_text()
    assert "harbor==0.99.0 is installed" in log
    assert "were tested with harbor==0.13.1" in log
    (record,) = site.parent.glob("jobs/job/*/record.json")
    assert json.loads(record.read_text())["agent"]["adapter_revision"] == "1.2.3 harbor==0.99.0"


def test_without_an_agent_of_harbors_nothing_of_harbor_is_loaded(tmp_path: Path) -> None:
    program = (
        "-c import sys\nfrom proctor.cli.main import main\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, sep=chr(10), file=sys.stderr)"
    )
    (tmp_path / "empty").mkdir()
    where = ("-o", "jobs", "-e", "null", "-q", "--no-ledger")
    for agent in ("oracle", "nop"):
        ran = run_with(SITE, "run", "-p", TASK, "-a", agent, *where, program=program)
        assert ran.code == 0, ran.err
        loaded = {name.partition(".")[0] for name in ran.err.splitlines()}
        assert "proctor" in loaded
        assert loaded.isdisjoint(THEIRS)
