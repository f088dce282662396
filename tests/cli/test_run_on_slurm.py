"""`--on slurm`: the script, the sentences, and submit, follow and cancel with small programs.

What a real Slurm does with it is in tests/cluster/test_slurm.py.
"""

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from proctor.cli.running.place import choose_place, choose_slurm
from proctor.cli.running.slurm import make_pilot
from proctor.cluster.pilot_script import Pilot, render_script
from proctor.cluster.slurm import State
from tests.cluster.ray_cluster import wait_until

pytest.importorskip("ray")

# Its script "runs" as soon as it is submitted: what it would print and its code come from files.
SBATCH = """#!/bin/sh
cat > "$FAKE/script"
printf '%s\\n' "$@" > "$FAKE/given"
[ -z "$REJECT" ] || { echo "sbatch: error: Batch job submission failed: $REJECT" >&2; exit 1; }
for each; do case $each in
    --output=*) echo "$OUT" > "$(echo "${each#*=}" | sed s/%j/12/)" ;;
    --error=*) files=$(echo "${each#*=}" | sed 's/%j.err/12/') ;;
esac; done
echo "$files" > "$FAKE/pilot"
[ -z "$CODE" ] || { mkdir "$files"; echo "$CODE" > "$files/code"; }
echo '12;cluster'
"""
SQUEUE = """#!/bin/sh
cat "$FAKE/state"
"""
SCANCEL = """#!/bin/sh
echo "$@" >> "$FAKE/cancelled"
pilot=$(cat "$FAKE/pilot")
case $* in *--signal=TERM*) mkdir "$pilot" && echo 130 > "$pilot/code" ;; esac
"""


@dataclass
class Fake:
    """A machine whose Slurm is a few small programs."""

    place: Path

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "PATH": f"{self.place}:/usr/bin:/bin",
            "FAKE": str(self.place),
            "PROCTOR_CACHE": str(self.place / "cache"),
            "HOME": str(self.place),
            **variables,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "proctor", *words],
            cwd=self.place,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **variables: str) -> tuple[int, str, str]:
        driver = self.start(*words, **variables)
        out, err = driver.communicate(timeout=120)
        return driver.returncode, out, err

    def read(self, name: str) -> str:
        return (self.place / name).read_text()


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    for name, text in {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "state").write_text("RUNNING|None\n")
    for name in ("environment", "tests"):
        (tmp_path / "tasks/one" / name).mkdir(parents=True)
    (tmp_path / "tasks/one/task.toml").write_text('schema_version = "1.3"\n')
    (tmp_path / "tasks/one/instruction.md").write_text("Do it.\n")
    (tmp_path / "tasks/one/tests/test.sh").write_text("true\n")
    return Fake(tmp_path)


RUN = ("run", "-p", "tasks", "-a", "nop", "--job-name", "job", "--on", "slurm")


def test_the_command_line_is_the_same_without_what_is_about_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path))
    words = ["run", "--slurm-arg=-N4", "-p", "t", "--slurm-arg", "--mem=8G", "--on=slurm"]
    pilot = make_pilot([*words, "--print-script", "-k", "3"], "job", ["-N4", "--mem=8G"])
    assert pilot.line == ["run", "-p", "t", "-k", "3", "--on", "ray"]


def test_the_script_has_the_options_and_quotes_what_it_is_given(tmp_path: Path) -> None:
    text = render_script(
        Pilot(
            name="a b%j",
            line=["run", "--command", "echo 'it is'; $X", "--on", "ray"],
            python="/home/me/my env/bin/python",
            directory=tmp_path / "with blank",
            pilots=tmp_path,
            options=["--nodes=4", "--comment=two words"],
        )
    )
    lines = text.splitlines()
    assert lines[:2] == ["#!/bin/bash", "#SBATCH --job-name=proctor-a_b_j"]
    assert "#SBATCH --nodes=4" in lines
    assert "#SBATCH '--comment=two words'" in lines
    assert "#SBATCH --signal=B:TERM@60" in lines
    assert "export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$pilot/token" in lines
    assert f"cd '{tmp_path}/with blank' || exit 2" in lines
    command = next(line for line in lines if " -m proctor run" in line)
    assert shlex.split(command)[-4:] == ["--command", "echo 'it is'; $X", "--on", "ray"]


@pytest.mark.process
def test_the_script_is_one_that_bash_reads(tmp_path: Path) -> None:
    text = render_script(Pilot("job", ["run"], "python", tmp_path, tmp_path))
    ran = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("on", "options", "sentence"),
    [
        ("ray", ("--nodes=4",), "--slurm-arg requires --on slurm"),
        ("slurm", ("nodes=4",), "expected an option of sbatch, such as --slurm-arg=--nodes=4"),
        ("slurm", ("--nodes=4\n#SBATCH -n9",), "expected an option of sbatch"),
        ("slurm", ("--array=1-3",), "proctor sets this itself"),
    ],
)
def test_options_that_cannot_be_are_refused(
    on: str, options: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(click.UsageError, match=sentence):
        choose_slurm(on, options, print_script=False)


def test_a_pilot_job_always_has_a_token() -> None:
    with pytest.raises(click.UsageError, match="a pilot job has a token"):
        choose_place("slurm", is_insecure=True)


def test_a_job_that_waits_says_why() -> None:
    assert str(State("PENDING", "Resources")) == "PENDING (Resources)"
    assert str(State("RUNNING", "None")) == "RUNNING"


@pytest.mark.process
def test_the_script_is_printed_and_nothing_is_submitted(fake: Fake) -> None:
    code, out, err = fake.run(*RUN, "--print-script", "--slurm-arg=--nodes=2")
    assert (code, err) == (0, "")
    assert out.startswith("#!/bin/bash\n")
    assert "#SBATCH --nodes=2\n" in out
    assert not (fake.place / "script").exists()
    assert not (fake.place / "jobs").exists()


@pytest.mark.process
def test_what_is_wrong_with_the_job_is_said_before_it_is_submitted(fake: Fake) -> None:
    code, _, err = fake.run("run", "-p", "nothing", "-a", "nop", "--on", "slurm")
    assert code == 2
    assert "nothing" in err
    assert not (fake.place / "script").exists()


@pytest.mark.process
def test_the_output_and_the_exit_code_are_those_of_the_run(fake: Fake) -> None:
    code, out, err = fake.run(*RUN, "--slurm-arg=--nodes=2", OUT="a result", CODE="3")
    assert (code, out) == (3, "a result\n")
    assert "Slurm job 12 submitted" in err
    # Before those of proctor, and not only in the script: SBATCH_NNODES would win there.
    assert fake.read("given").splitlines()[:2] == ["--nodes=2", "--parsable"]
    assert "-m proctor run -p tasks -a nop --job-name job" in fake.read("script")
    assert list((fake.place / "cache/slurm").iterdir()) == []


@pytest.mark.process
def test_a_job_that_slurm_rejects_is_a_sentence(fake: Fake) -> None:
    code, _, err = fake.run(*RUN, REJECT="Invalid account")
    assert code == 2
    assert "Slurm rejected the job: Batch job submission failed: Invalid account; options" in err


@pytest.mark.process
def test_a_machine_without_slurm_is_a_sentence(fake: Fake) -> None:
    (fake.place / "sbatch").unlink()
    code, _, err = fake.run(*RUN, PATH=str(fake.place))
    assert code == 2
    assert "there is no sbatch on this machine" in err


@pytest.mark.process
def test_a_job_that_slurm_ends_is_a_sentence(fake: Fake) -> None:
    (fake.place / "state").write_text("TIMEOUT|TimeLimit\n")
    (fake.place / "jobs/job").mkdir(parents=True)
    code, _, err = fake.run(*RUN)
    assert code == 2
    assert "Slurm job 12 reached its time limit; what it printed is in " in err
    assert f"Continue with: proctor resume {fake.place}/jobs/job --on slurm" in err


@pytest.mark.process
def test_a_run_that_was_interrupted_elsewhere_says_how_to_continue(fake: Fake) -> None:
    code, _, err = fake.run(*RUN, CODE="130")
    assert code == 130
    assert "Slurm ended job 12, by its time limit or by scancel" in err


@pytest.mark.process
@pytest.mark.parametrize(
    ("state", "line"), [("RUNNING", "--batch --signal=TERM 12"), ("PENDING", "12")]
)
def test_ctrl_c_reaches_the_job(fake: Fake, state: str, line: str) -> None:
    (fake.place / "state").write_text(f"{state}|Resources\n")
    driver = fake.start(*RUN)
    wait_until((fake.place / "pilot").exists)
    assert driver.stderr is not None
    assert any("Slurm job 12 submitted" in each for each in driver.stderr)
    # Its handler is in place as soon as it has asked for the state.
    assert any(f"Slurm job 12: {state}" in each for each in driver.stderr)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) == 130
    assert fake.read("cancelled") == f"{line}\n"
    driver.communicate()
