"""`proctor.load` and `proctor.compare`: runs in Python, and the notebook that shows them."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

import proctor
from proctor.api import Experiment
from proctor.errors import InputError, ProctorError
from proctor.report.runs import load_job_run
from tests.cli.programs import Proctor, run_here

ROOT = Path(__file__).resolve().parent.parent
JOBS = ROOT / "tests" / "data" / "harbor" / "jobs"
BINARY = JOBS / "03-binary-oracle-k5"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    """The program in this process."""
    return run_here(monkeypatch, capsys)


def test_a_job_and_its_import_give_the_same_numbers(run: Proctor, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    assert run("import", "harbor", BINARY, "--ledger", ledger).code == 0
    job = proctor.load(BINARY)[BINARY.name]
    sealed = proctor.load(str(ledger))[BINARY.name]
    assert len(job.rows) == len(load_job_run(str(BINARY)).trials) > 10
    keys = ("trial_id", "task_id", "agent", "model", "reward", "seconds", "cost_usd", "exception")
    by_id = [
        sorted(([row[key] for key in keys] for row in each.rows), key=str) for each in (job, sealed)
    ]
    assert by_id[0] == by_id[1]
    assert [list(each.scores) for each in (job, sealed)] == [["oracle"], ["oracle"]]
    (ours,), (theirs,) = job.scores.values(), sealed.scores.values()
    assert (ours["passed"], ours["pass_at"]) == (theirs["passed"], theirs["pass_at"])


def test_a_directory_of_jobs_is_its_jobs() -> None:
    runs = proctor.load(JOBS)
    assert list(runs) == sorted(path.name for path in JOBS.iterdir() if path.is_dir())
    assert repr(runs).startswith("<Experiments: 01-binary-oracle-k1, ")
    assert repr(runs[BINARY.name]) == f"<Experiment {BINARY.name}: 15 trials>"


def test_rows_become_frames() -> None:
    job = proctor.load(BINARY)[BINARY.name]
    pandas, polars = job.to_pandas(), job.to_polars()
    rewards = [row["reward"] for row in job.rows]
    assert pandas["reward"].tolist() == polars["reward"].to_list() == rewards
    assert list(pandas.columns) == polars.columns == list(job.rows[0])


def test_comparing_is_what_the_command_computes() -> None:
    runs = proctor.load(JOBS)
    compared = proctor.compare(runs["01-binary-oracle-k1"], runs["02-binary-nop-k1"])
    assert (compared.paired.wins, compared.paired.ties, compared.paired.losses) == (2, 1, 0)
    with pytest.raises(InputError, match="agents and models match; pass --a"):
        proctor.compare(runs["14-two-models"], runs["02-binary-nop-k1"])


def test_a_trace_is_found_by_the_beginning_of_an_id(run: Proctor, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text("echo one\nfalse\n")
    task = tmp_path / "tasks" / "t"
    shutil.copytree(ROOT / "examples" / "tasks" / "greet", task)
    words: tuple[str, ...] = (
        "-a",
        "scripted",
        "--ak",
        f"script={script}",
        "-e",
        "null",
        "--no-ledger",
        "-k",
        "2",
    )
    words += ("-o", str(tmp_path / "jobs"), "--job-name", "j", "-q")
    assert run("run", "-p", task, *words).code == 0
    job = proctor.load(tmp_path / "jobs")["j"]
    trial = job.rows[0]["trial_id"]
    entries = job.trace(trial)
    assert [each["role"] for each in entries][:2] == ["user", "tool_call"]
    assert entries[1]["command"] == "echo one"
    with pytest.raises(InputError, match="j: 2 trials with an id that begins with 't__'"):
        job.trace("t__")
    with pytest.raises(InputError, match="j: no trial with an id that begins with 'x'"):
        job.trace("x")


@pytest.mark.parametrize("name", ["nothing", "empty", "file"])
def test_what_is_no_run_gets_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ProctorError, match=name):
        proctor.load(tmp_path / name)


def test_an_experiment_of_nothing_but_errors_has_scores() -> None:
    job = proctor.load(JOBS / "06-errors-oracle-k1")["06-errors-oracle-k1"]
    assert isinstance(job, Experiment)
    assert all(score["account"]["counted"] for score in job.scores.values())


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        _ = proctor.lod


@pytest.mark.process
def test_the_package_alone_loads_nothing_heavy() -> None:
    script = "import proctor, sys; sys.exit('msgspec' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.process
def test_the_notebook_runs_and_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "examples" / "compare.ipynb"
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    shown = [outputs_of(cell) for cell in notebook.cells]
    # Files of the running kernel are not for a person's home.
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": ROOT}})
    client.execute()
    assert [outputs_of(cell) for cell in notebook.cells] == shown
    assert any(shown)


def outputs_of(cell: nbformat.NotebookNode) -> list[str]:
    """What a cell shows, as text."""
    return [
        output.get("text") or output["data"]["text/plain"] for output in cell.get("outputs", ())
    ]
