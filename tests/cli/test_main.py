"""The outermost door: exit codes, help, interruption, readers that go away."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proctor import __version__
from proctor.cli.main import COMMANDS, cli
from proctor.errors import InputError, MetricError, ProctorError, RewardError
from tests.audit.directories import COPIED, copy_job, find_trial
from tests.cli.programs import Proctor, command_line, environment, run_child

BINARY, ERRORS = COPIED / "01-binary-oracle-k1", COPIED / "06-errors-oracle-k1"


@pytest.fixture
def doctored(tmp_path: Path) -> Path:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    (find_trial(job, "oracle-wrong") / "verifier" / "reward.txt").write_text("1")
    return job


def test_exit_codes_tell_what_happened(doctored: Path) -> None:
    assert run_child("score", BINARY).code == 0
    assert run_child("audit", doctored).code == 1
    assert run_child("score", "absent").code == 2
    assert run_child("score", ERRORS).code == 3


def test_without_a_command_the_help_is_shown_as_wrong_use(proctor: Proctor) -> None:
    ran = proctor()
    assert (ran.code, ran.out) == (2, "")
    assert all(f"  {name}" in ran.err for name in COMMANDS)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_with_an_example(proctor: Proctor, flag: str) -> None:
    ran = proctor(flag)
    assert (ran.code, ran.err) == (0, "")
    lines = " ".join(ran.out.split())
    for name, summary in COMMANDS.items():
        assert f" {name} {summary}" in lines


def test_help_begins_with_five_everyday_commands_and_ends_with_three_examples(
    proctor: Proctor,
) -> None:
    parts = [part.splitlines() for part in proctor("--help").out.split("\n\n")]
    (everyday,) = [part for part in parts if part[0] == "Everyday commands:"]
    assert [line.split()[0] for line in everyday[1:]] == ["run", "view", "show", "compare", "audit"]
    assert parts[-1][0] == "  Examples:"
    assert len(parts[-1]) == 1 + 3


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(proctor: Proctor, name: str) -> None:
    ran = proctor(name, "--help")
    assert ran.code == 0
    assert f"Example: proctor {name} " in ran.out
    assert "--json" in ran.out or "Commands:" in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    command = cli.get_command(cli.make_context("proctor", ["--help"], resilient_parsing=True), name)
    assert command is not None
    assert command.help is not None
    assert command.help.partition("\n")[0] == COMMANDS[name]


def test_the_version_is_told(proctor: Proctor) -> None:
    assert proctor("--version").out == f"proctor, version {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["aduit"], "No such command 'aduit'. Did you mean `proctor audit`?"),
        (["grade"], "Did you mean `proctor gate` or `proctor trace`?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (["verify"], "Did you mean `proctor ledger verify`?"),
        (["digest"], "Did you mean `proctor task digest`?"),
        (["ledger", "verfy"], "Did you mean `proctor ledger verify`?"),
        (["trace", "sumary"], "Did you mean `proctor trace summary`?"),
        (["score", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
    ],
)
def test_an_unknown_command_or_option_is_wrong_use_with_a_suggestion(
    proctor: Proctor, words: list[str], said: str
) -> None:
    ran = proctor(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize("name", ["score", "check", "audit"])
def test_a_command_without_its_argument_is_wrong_use(proctor: Proctor, name: str) -> None:
    ran = proctor(name)
    assert ran.code == 2
    assert "Missing argument" in ran.err


@pytest.mark.parametrize("name", ["score", "audit"])
def test_an_unknown_profile_is_wrong_use(proctor: Proctor, name: str) -> None:
    ran = proctor(name, BINARY, "--profile", "harbor-9")
    assert ran.code == 2
    assert "'harbor-9' is not one of 'harbor-0.13.1', 'harbor-0.25'" in ran.err


def test_help_loads_no_command() -> None:
    program = (
        "import sys; from proctor.cli.main import cli; cli(['--help'], standalone_mode=False);"
        "print([name for name in sys.modules if name.startswith('proctor.audit')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", ["board", "check", "compare", "gate", "report", "view"])
def test_the_help_of_a_command_loads_no_server_no_templates_and_no_statistics(name: str) -> None:
    program = (
        "import sys; from proctor.cli.main import cli; "
        f"cli(['{name}', '--help'], standalone_mode=False); "
        "print({'scipy', 'numpy', 'starlette', 'uvicorn', 'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "set()"


STOPPED = """
import runpy, sys
class Stop:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            try:
                # Python marks an interrupt in here as one that nobody handled.
                exec("raise KeyboardInterrupt")
            finally:
                {cleaning}
sys.meta_path.insert(0, Stop())
sys.argv = ["proctor", "score", "absent"]
runpy.run_module("proctor", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "cleaning"),
    [
        ("click", "pass"),
        ("proctor.cli.score", "pass"),
        ("proctor.cli.score", "int('cleaning up fails too')"),
        ("proctor.cli.score", "from proctor.errors import DamageError; raise DamageError('torn')"),
    ],
)
def test_an_interrupt_is_told_as_one_whenever_it_comes(module: str, cleaning: str) -> None:
    program = STOPPED.format(module=module, cleaning=cleaning)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.strip()) == (130, "proctor: interrupted")


@pytest.mark.parametrize("kind", [ProctorError, InputError, RewardError, MetricError])
def test_what_is_raised_on_purpose_leaves_as_a_sentence(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch, kind: type[ProctorError]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise kind("job: found this; expected that")

    monkeypatch.setattr("proctor.cli.score.score_jobs", fail)
    ran = proctor("score", BINARY)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "proctor: job: found this; expected that\n"


def test_a_defect_of_ours_is_shown_with_its_traceback(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("unforeseen")

    monkeypatch.setattr("proctor.cli.score.score_jobs", fail)
    ran = proctor("score", BINARY)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" in ran.err
    assert ran.err.endswith("the error above is a defect of proctor; please report it\n")


def test_an_unforeseen_error_of_a_file_is_not_blamed_on_stdout(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.cli.score.score_jobs", lambda *_, **__: Path("absent").stat())
    ran = proctor("score", BINARY)
    assert (ran.code, ran.out) == (2, "")
    assert "standard output" not in ran.err
    assert ran.err.endswith("the error above is a defect of proctor; please report it\n")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "proctor: interrupted"),
        # click's answer when the reader of a help page has gone.
        (SystemExit(1), 0, ""),
    ],
)
def test_what_ends_a_command_early_has_its_code(
    proctor: Proctor,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("proctor.cli.score.load_job", stop)
    ran = proctor("score", BINARY)
    assert (ran.code, ran.out, ran.err.strip()) == (code, "", message)


def test_commands_are_listed_in_the_order_of_the_table() -> None:
    context = cli.make_context("proctor", ["--help"], resilient_parsing=True)
    assert cli.list_commands(context) == list(COMMANDS)


def piped(arguments: list[object], *, lines: int) -> tuple[int, list[str], str]:
    """A command whose reader takes some lines and goes: exit code, lines read, stderr."""
    child = subprocess.Popen(
        command_line(*arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    with child, child.stderr:
        read = [child.stdout.readline() for _ in range(lines)]
        child.stdout.close()
        err = child.stderr.read()
        return child.wait(60), read, err


@pytest.mark.parametrize("lines", [0, 1])
def test_a_reader_that_goes_changes_no_exit_code(doctored: Path, lines: int) -> None:
    job = COPIED / "29-passk-20"
    for arguments, expected in [
        (["score", job, "--explain"], 0),
        (["score", job, "--json"], 0),
        (["audit", doctored], 1),
        (["audit", doctored, "--against", BINARY], 1),
        (["score", ERRORS, "--explain"], 3),
    ]:
        code, read, err = piped(arguments, lines=lines)
        assert (code, err) == (expected, "")
        assert all(read)


def test_the_reader_of_a_help_page_may_go() -> None:
    assert piped(["--help"], lines=0)[::2] == (0, "")


def test_a_closed_stdout_is_no_defect() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command_line("score", BINARY)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupted_command_leaves_with_130() -> None:
    child = subprocess.Popen(
        command_line("outcome", "--stdout", "-", "--exit-code", "0"),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    with child:
        # More than a pipe holds: when all of it is written, the child is reading.
        child.stdin.write(b"x" * (1 << 20))
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, b"")
    assert err.decode().strip() == "proctor: interrupted"


def test_json_is_one_document_on_stdout_and_all_else_on_stderr(
    proctor: Proctor, tmp_path: Path
) -> None:
    certificate = tmp_path / "c.json"
    commands: list[list[object]] = [
        ["score", BINARY, "--json", "--explain", "--certificate", certificate],
        ["check", certificate, "--json"],
        ["audit", BINARY, ERRORS, "--json"],
        ["audit", BINARY, "--against", ERRORS, "--json"],
        ["outcome", BINARY, "--json"],
        ["outcome", "--reason", "timed out", "--json"],
    ]
    for arguments in commands:
        ran = proctor(*arguments)
        assert isinstance(json.loads(ran.out), dict), arguments
        assert ran.out.endswith("\n}\n")


@pytest.mark.parametrize("name", ["score", "audit"])
def test_a_failing_command_prints_no_json(proctor: Proctor, name: str) -> None:
    ran = proctor(name, "absent", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("proctor: absent: ")
