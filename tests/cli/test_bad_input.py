"""Bad input, item by item: a sentence that names the file, good trials scored, nothing written."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.audit.directories import (
    COPIED,
    copy_job,
    edit_json,
    find_trial,
    listing,
    make_job,
)
from tests.cli.programs import Proctor, run_child, run_unprivileged

JOB_COMMANDS = ("score", "audit", "outcome")
MISSING = (
    'BASE_BENCHMARK_RESULT={"reason_code": "harbor_result_missing", "resolved": 0, "score": 0.0, '
    '"status": "failed", "total": 0}\n'
)
"""What `outcome` prints all the same: its reader waits for a line."""
every_command = pytest.mark.parametrize("command", JOB_COMMANDS)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return copy_job("01-binary-oracle-k1", tmp_path)


@pytest.fixture
def failed(job: Path) -> Path:
    """The trial of the job that scored 0."""
    return find_trial(job, "oracle-wrong")


def score(proctor: Proctor, job: Path) -> tuple[int, dict[str, int], str]:
    """Exit code, denominators and notes; nothing may be written into the job."""
    before = listing(job)
    ran = proctor("score", job, "--json")
    assert listing(job) == before
    document = json.loads(ran.out)
    return ran.code, document["denominators"], "\n".join(document["notes"])


@every_command
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "absent"),
        (lambda path: path.mkdir(), "empty directory; expected a Harbor job directory"),
        (lambda path: (path / "photos").mkdir(parents=True), "not a Harbor job directory: no"),
        (lambda path: shutil.copytree(COPIED / "01-binary-oracle-k1", path / "j1"), "1 job direc"),
        (
            lambda path: shutil.copytree(
                COPIED / "01-binary-oracle-k1" / "oracle-wrong__2j385Vz", path
            ),
            "this is one trial; expected the job directory around it",
        ),
    ],
    ids=["absent", "empty", "something else", "jobs", "trial"],
)
def test_what_is_no_job_is_refused_by_name(
    proctor: Proctor, tmp_path: Path, command: str, make: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "absent"
    make(path)
    ran = proctor(command, path)
    assert (ran.code, ran.out) == (2, MISSING if command == "outcome" else "")
    assert ran.err.startswith(f"proctor: {path}: ")
    assert message in ran.err


@pytest.mark.parametrize("command", ["score", "audit"])
def test_a_file_in_place_of_a_job_is_refused(proctor: Proctor, job: Path, command: str) -> None:
    ran = proctor(command, job / "result.json")
    assert (ran.code, ran.out) == (2, "")
    assert "result.json: this is a file; expected a Harbor job directory" in ran.err


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"n_total_trials": "3", "stats": {}}', "\x00\ufeff"]
)
def test_a_torn_job_result_is_said_and_the_trials_are_scored(
    proctor: Proctor, job: Path, text: str
) -> None:
    (job / "result.json").write_text(text)
    code, parts, notes = score(proctor, job)
    assert (code, parts["scored"]) == (0, 3)
    assert f"{job}/result.json: " in notes
    assert proctor("audit", job).code == 1


def test_keys_of_a_later_harbor_are_skipped(proctor: Proctor, job: Path, failed: Path) -> None:
    later = {"later": {"x": [1, None]}, "another": "key"}
    edit_json(job / "result.json", lambda result: result.update(later))
    edit_json(job / "lock.json", lambda lock: lock.update(later))
    edit_json(job / "config.json", lambda config: config.update(later))
    edit_json(failed / "result.json", lambda trial: trial.update(later))
    assert score(proctor, job)[0] == 0
    assert proctor("audit", job).code == 0


def test_a_trial_without_result_is_unfinished(proctor: Proctor, job: Path, failed: Path) -> None:
    (failed / "result.json").unlink()
    code, parts, _ = score(proctor, job)
    assert (code, parts["run"], parts["not_run"]) == (3, 2, 1)
    ran = proctor("audit", job)
    assert ran.code == 1
    assert f"note: unfinished-trial  {failed.name}" in ran.out


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"task_name": "x"}', "[" * 100_000])
def test_a_broken_trial_is_counted_and_the_others_are_scored(
    proctor: Proctor, job: Path, failed: Path, text: str
) -> None:
    (failed / "result.json").write_text(text)
    code, parts, notes = score(proctor, job)
    assert (code, parts["run"], parts["broken"]) == (3, 2, 1)
    assert f"{failed}/result.json: " in notes


def test_a_thousand_trials_with_one_corrupt_are_scored(proctor: Proctor, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {f"t{n}": ["1"] for n in range(1000)})
    (job / "t500__job1" / "result.json").write_text('{"task_name": ')
    ran = proctor("score", job)
    assert ran.code == 3
    assert "trials: 1000 planned = 999 run + 1 cannot be read + 0 not run" in ran.out
    assert "t500__job1/result.json: torn or not JSON" in ran.out


@pytest.mark.parametrize(
    ("name", "text", "scored"),
    [
        ("reward.txt", "9" * 5000, 3),
        ("reward.json", f'{{"reward": {"9" * 5000}}}', 2),
        ("reward.json", f'{{"reward": {"9" * 4000}}}', 3),
        ("reward.json", f'{{"reward": 0.{"1" * 5000}}}', 3),
        ("reward.json", "[" * 100_000, 2),
        ("reward.json", '{"a":' * 5000 + "1" + "}" * 5000, 2),
        ("reward.json", '{"reward": 1e999}', 3),
        ("reward.json", "{}", 2),
    ],
    ids=["digits", "json digits", "huge", "fraction", "deep", "deep objects", "inf", "empty"],
)
def test_odd_rewards_end_no_command(
    proctor: Proctor, job: Path, failed: Path, name: str, text: str, scored: int
) -> None:
    (failed / "verifier" / name).write_text(text)
    code, parts, _ = score(proctor, job)
    assert (code, parts["scored"]) == (0 if scored == 3 else 3, scored)
    for command in (["audit"], ["score", "--explain"], ["score", "--json"]):
        ran = proctor(command[0], job, *command[1:])
        assert ran.code in (0, 1, 3)
        assert "defect" not in ran.err


def test_a_huge_reward_goes_through_a_certificate(
    proctor: Proctor, job: Path, failed: Path, tmp_path: Path
) -> None:
    (failed / "verifier" / "reward.json").write_text(f'{{"reward": {"9" * 4000}}}')
    certificate = tmp_path / "c.json"
    assert proctor("score", job, "--certificate", certificate).code == 0
    assert proctor("check", certificate).code == 0


@pytest.mark.parametrize("name", ["result.json", "config.json", "lock.json"])
def test_deeply_nested_job_files_are_torn_files(proctor: Proctor, job: Path, name: str) -> None:
    deep = '{"stats": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + ', "n_total_trials": 3}'
    (job / name).write_text(deep)
    assert score(proctor, job)[1]["scored"] == 3
    assert proctor("audit", job).code in (0, 1)
    assert proctor("outcome", job).code == 0


def test_links_in_a_circle_lead_nowhere(proctor: Proctor, job: Path, failed: Path) -> None:
    for link in (job / "circle", failed / "verifier" / "reward.json", failed / "exception.txt"):
        link.symlink_to(link.name)
    code, parts, _ = score(proctor, job)
    assert (code, parts["scored"]) == (0, 3)
    assert proctor("audit", job).code == 0


def test_a_link_to_the_job_itself_is_no_trial(proctor: Proctor, job: Path) -> None:
    (job / "self").symlink_to(job)
    assert score(proctor, job)[1]["planned"] == 3
    assert proctor("audit", job).code == 0


@pytest.mark.parametrize(
    "place",
    ["verifier/reward.txt", "verifier/reward.json", "result.json", "config.json", "exception.txt"],
)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(job: Path, failed: Path, place: str) -> None:
    (failed / place).unlink(missing_ok=True)
    os.mkfifo(failed / place)
    assert run_child("score", job).code in (0, 3)
    assert run_child("audit", job).code == 1


def test_names_with_double_underscores_are_harbors_own_trouble(
    proctor: Proctor, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "a__b", {"x__y": ["1"], "__": ["0"]})
    code, parts, _ = score(proctor, job)
    assert (code, parts["scored"]) == (0, 2)
    assert proctor("audit", job).code == 0
    assert proctor("audit", COPIED / "40-dataset-name-dunder").code == 0


@pytest.fixture
def readable() -> Iterator[Path]:
    """A directory that every user can reach, unlike tmp_path."""
    directory = Path(tempfile.mkdtemp(prefix="proctor-test-"))
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o755)
    for path in directory.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    ("place", "score_code", "audit_code"),
    [
        ("oracle-wrong__2j385Vz/result.json", 3, 1),
        ("oracle-wrong__2j385Vz/verifier/reward.txt", 3, 1),
        ("oracle-wrong__2j385Vz/verifier", 3, 1),
        ("oracle-wrong__2j385Vz/config.json", 0, 1),
        ("oracle-wrong__2j385Vz", 3, 1),
        ("result.json", 0, 1),
        ("config.json", 0, 1),
        ("lock.json", 0, 1),
    ],
)
def test_unreadable_files_are_named(
    proctor: Proctor, readable: Path, place: str, score_code: int, audit_code: int
) -> None:
    job = copy_job("01-binary-oracle-k1", readable)
    (job / place).chmod(0)
    scored, audited = (run_unprivileged(proctor, command, job) for command in ("score", "audit"))
    assert (scored.code, audited.code) == (score_code, audit_code)
    assert "Traceback" not in scored.err + audited.err
    if place.endswith(".json"):
        assert f"{job / place}: cannot be read: Permission denied" in audited.out


@pytest.mark.parametrize("command", ["score", "audit"])
def test_an_unreadable_job_is_named(proctor: Proctor, readable: Path, command: str) -> None:
    job = copy_job("01-binary-oracle-k1", readable)
    job.chmod(0)
    ran = run_unprivileged(proctor, command, job)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"proctor: {job}: cannot be read: Permission denied\n"


def test_a_certificate_may_not_be_writable(proctor: Proctor, readable: Path) -> None:
    job = copy_job("01-binary-oracle-k1", readable)
    readable.chmod(0o555)
    ran = run_unprivileged(proctor, "score", job, "--certificate", readable / "c.json")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"proctor: {readable}/c.json: cannot be written: Permission denied\n"


def test_a_full_disk_leaves_no_half_certificate(
    proctor: Proctor, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("proctor.files.os.fsync", fail)
    target = tmp_path / "out" / "c.json"
    target.parent.mkdir()
    ran = proctor("score", job, "--certificate", target)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"proctor: {target}: cannot be written: No space left on device\n"
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_a_device_is_no_place_for_a_certificate(
    proctor: Proctor, job: Path, tmp_path: Path, device: str
) -> None:
    # Through a link, so that a mistake here replaces the link and not the machine's device.
    link = tmp_path / "device"
    link.symlink_to(device)
    ran = proctor("score", job, "--certificate", link)
    assert (ran.code, ran.out) == (2, "")
    assert "not a plain file" in ran.err
    assert Path(device).is_char_device()


def test_a_link_in_a_circle_is_no_place_for_a_certificate(
    proctor: Proctor, job: Path, tmp_path: Path
) -> None:
    link = tmp_path / "circle"
    link.symlink_to(link)
    ran = proctor("score", job, "--certificate", link)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (f"proctor: {link}: a circular link; expected a file\n")
    assert link.is_symlink()


@pytest.mark.parametrize("command", ["score", "check", "audit", "outcome"])
def test_a_name_too_long_for_any_file_is_refused(proctor: Proctor, command: str) -> None:
    ran = proctor(command, "x" * 300)
    assert (ran.code, ran.out) == (2, MISSING if command == "outcome" else "")
    assert ran.err.startswith(f"proctor: {'x' * 300}: cannot be read: File name too long")


def test_what_lies_behind_a_closed_door_is_said_to_be_unreadable(
    proctor: Proctor, readable: Path
) -> None:
    job = copy_job("01-binary-oracle-k1", readable)
    job.chmod(0)
    for command in ("check", "outcome"):
        ran = run_unprivileged(proctor, command, job / "result.json")
        assert (ran.code, ran.out) == (2, MISSING if command == "outcome" else "")
        assert f"{job}/result.json: cannot be read: Permission denied" in ran.err


def test_no_command_writes_into_a_job(proctor: Proctor, job: Path, tmp_path: Path) -> None:
    before = listing(job)
    commands: list[list[object]] = [
        ["score", job],
        ["score", job, "--explain", "--json"],
        ["score", job, "--certificate", tmp_path / "c.json"],
        ["audit", job],
        ["audit", job, "--against", COPIED / "02-binary-nop-k1"],
        ["audit", job, "--run-metric-scripts"],
        ["outcome", job],
        ["outcome", job / "result.json", "--json"],
        ["check", job / "result.json"],
    ]
    for arguments in commands:
        assert "defect" not in proctor(*arguments).err
        assert listing(job) == before, arguments


def test_a_directory_name_that_is_no_text_is_shown(proctor: Proctor, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]}).rename(tmp_path / os.fsdecode(b"job\xff"))
    ran = proctor("score", job, "--explain")
    assert ran.code == 0
    assert r"job\udcff, scored by" in ran.out
    assert json.loads(proctor("audit", job, "--json").out)["follows"] is True


def test_python_caches_nothing_in_a_job_it_reads(job: Path) -> None:
    before = listing(job)
    assert run_child("audit", job).code == 0
    assert listing(job) == before
