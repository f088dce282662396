"""Verifier directories: precedence, what lies where a file should, and what score comes of it."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from proctor.errors import RewardFileEmptyError, RewardFileNotFoundError, VerifierOutputParseError
from proctor.reward.profile import HARBOR_0_25
from proctor.reward.read import LARGEST, load_rewards, read_score
from proctor.reward.score import Scored, Unscored
from tests.unprivileged import unprivileged


@pytest.fixture
def verifier() -> Iterator[Path]:
    """A verifier directory that any user may enter."""
    with TemporaryDirectory(prefix="proctor-verifier-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def test_reward_json_wins_over_reward_txt(verifier: Path) -> None:
    (verifier / "reward.json").write_text('{"reward": 1}')
    (verifier / "reward.txt").write_text("0")
    assert load_rewards(str(verifier)) == {"reward": 1}


def test_reward_txt_decides_when_there_is_no_json(verifier: Path) -> None:
    (verifier / "reward.txt").write_text("0.5\n")
    assert load_rewards(str(verifier)) == {"reward": 0.5}


@pytest.mark.parametrize(("name", "kind"), [("reward.json", "JSON"), ("reward.txt", "text")])
def test_a_huge_file_is_refused_unread_and_the_largest_one_is_not(
    verifier: Path, name: str, kind: str
) -> None:
    path = verifier / name
    number = b"1" if kind == "text" else b'{"reward": 1}'
    path.write_bytes(number.ljust(LARGEST, b" "))
    assert load_rewards(str(verifier)) == {"reward": 1}
    os.truncate(path, 100 << 30)
    with pytest.raises(VerifierOutputParseError) as failure:
        load_rewards(str(verifier))
    assert str(failure.value) == (
        f"Failed to parse rewards from {kind} file {path}: it is larger than 16 MiB; expected a "
        "few numbers"
    )
    score = read_score(str(verifier))
    assert isinstance(score, Unscored)
    assert (score.error, score.code) == ("VerifierOutputParseError", "harbor_reward_parse_error")


@pytest.mark.parametrize("name", ["reward.json", "reward.txt"])
def test_an_empty_file_is_its_own_error(verifier: Path, name: str) -> None:
    (verifier / name).touch()
    with pytest.raises(RewardFileEmptyError) as failure:
        load_rewards(str(verifier))
    assert str(failure.value) == f"Reward file is empty at {verifier}/{name}"


@pytest.mark.parametrize(
    ("content", "error"), [("", RewardFileEmptyError), ("x", VerifierOutputParseError)]
)
def test_a_bad_json_still_wins_over_a_good_txt(
    verifier: Path, content: str, error: type[Exception]
) -> None:
    (verifier / "reward.json").write_text(content)
    (verifier / "reward.txt").write_text("1")
    with pytest.raises(error):
        load_rewards(str(verifier))


def check_absent(directory: Path) -> None:
    with pytest.raises(RewardFileNotFoundError) as failure:
        load_rewards(str(directory))
    assert isinstance(failure.value, FileNotFoundError)
    assert str(failure.value) == (
        f"No reward file found at {directory}/reward.txt or {directory}/reward.json"
    )


def test_other_names_are_not_reward_files(verifier: Path) -> None:
    for name in ("Reward.json", "rewards.json", "reward.TXT"):
        (verifier / name).write_text("1")
    check_absent(verifier)


def test_a_missing_directory_has_no_reward_file(verifier: Path) -> None:
    check_absent(verifier / "nowhere")


def test_a_file_where_the_directory_should_be_has_no_reward_file(verifier: Path) -> None:
    (verifier / "file").touch()
    check_absent(verifier / "file")


@pytest.mark.parametrize("target", ["nowhere", "reward.json", "nowhere/reward.json"])
def test_a_dangling_or_circular_link_is_absent(verifier: Path, target: str) -> None:
    (verifier / "reward.json").symlink_to(target)
    check_absent(verifier)
    (verifier / "reward.txt").write_text("1")
    assert load_rewards(str(verifier)) == {"reward": 1.0}


def test_a_loop_of_two_links_is_absent(verifier: Path) -> None:
    (verifier / "reward.txt").symlink_to("reward.json")
    (verifier / "reward.json").symlink_to("reward.txt")
    check_absent(verifier)


def test_a_link_to_a_good_file_is_followed(verifier: Path) -> None:
    (verifier / "elsewhere").write_text("0.5")
    (verifier / "reward.txt").symlink_to("elsewhere")
    assert load_rewards(str(verifier)) == {"reward": 0.5}


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


NO_FILES: list[tuple[Callable[[Path], object], type[Exception], str]] = [
    (Path.mkdir, IsADirectoryError, "[Errno 21] Is a directory: '{path}'"),
    (os.mkfifo, RewardFileEmptyError, "Reward file is empty at {path}"),
    (
        lambda path: path.symlink_to("/dev/null"),
        RewardFileEmptyError,
        "Reward file is empty at {path}",
    ),
    (lambda path: path.symlink_to("/dev/zero"), OSError, "[Errno 22] not a regular file: '{path}'"),
    (make_socket, OSError, "[Errno 6] No such device or address: '{path}'"),
]


@pytest.mark.parametrize("name", ["reward.json", "reward.txt"])
@pytest.mark.parametrize(("make", "error", "message"), NO_FILES, ids=range(len(NO_FILES)))
def test_what_is_no_file_is_neither_waited_for_nor_drained(
    verifier: Path, name: str, make: Callable[[Path], object], error: type[Exception], message: str
) -> None:
    make(verifier / name)
    with pytest.raises(error) as failure:
        load_rewards(str(verifier))
    assert str(failure.value) == message.format(path=verifier / name)


def test_a_pipe_that_somebody_keeps_open_is_not_waited_for(verifier: Path) -> None:
    os.mkfifo(verifier / "reward.txt")
    writer = os.open(verifier / "reward.txt", os.O_RDWR)
    try:
        score = read_score(str(verifier))
    finally:
        os.close(writer)
    assert isinstance(score, Unscored)
    assert score.error == "BlockingIOError"


def test_an_unreadable_file_is_not_an_absent_one(verifier: Path) -> None:
    (verifier / "reward.json").write_text('{"reward": 1}')
    (verifier / "reward.json").chmod(0)
    with unprivileged():
        score = read_score(str(verifier))
    reason = f"{verifier}: [Errno 13] Permission denied: '{verifier}/reward.json'"
    assert score == Unscored(reason, "PermissionError", "harbor_trial_failed")


def test_a_directory_that_may_not_be_entered_is_not_an_empty_one(verifier: Path) -> None:
    closed = verifier / "closed"
    closed.mkdir(mode=0)
    with unprivileged():
        score = read_score(str(closed))
    reason = f"{closed}: [Errno 13] Permission denied: '{closed}/reward.json'"
    assert score == Unscored(reason, "PermissionError", "harbor_trial_failed")


def test_a_good_file_is_a_score(verifier: Path) -> None:
    (verifier / "reward.json").write_text('{"a": 1, "b": true}')
    assert read_score(str(verifier)) == Scored({"a": 1, "b": 1.0})


def test_a_file_over_16_kib_is_read_whole(verifier: Path) -> None:
    (verifier / "reward.json").write_text(" " * 20_000 + '{"reward": 1}' + "\n" * 20_000)
    assert read_score(str(verifier)) == Scored({"reward": 1})


def test_an_empty_map_is_a_score(verifier: Path) -> None:
    (verifier / "reward.json").write_text("{}")
    assert read_score(str(verifier)) == Scored({})


def test_null_is_no_score_and_no_error(verifier: Path) -> None:
    (verifier / "reward.json").write_text("null")
    reason = f"{verifier}/reward.json: null; the verifier declined to score"
    assert read_score(str(verifier)) == Unscored(reason, error=None, code=None)


UNSCORED = [
    (
        {},
        "RewardFileNotFoundError",
        "harbor_reward_missing",
        "No reward file found at {dir}/reward.txt or {dir}/reward.json",
    ),
    (
        {"reward.txt": ""},
        "RewardFileEmptyError",
        "harbor_reward_empty",
        "Reward file is empty at {dir}/reward.txt",
    ),
    (
        {"reward.txt": "x"},
        "VerifierOutputParseError",
        "harbor_reward_parse_error",
        "Failed to parse rewards from text file {dir}/reward.txt",
    ),
    (
        {"reward.json": "[1]"},
        "ValidationError",
        "harbor_trial_failed",
        "{dir}/reward.json: rewards: Input should be a valid dictionary",
    ),
    (
        {"reward.json": '{"a": null}'},
        "ValidationError",
        "harbor_trial_failed",
        "{dir}/reward.json: rewards.a.float: Input should be a valid number; "
        "rewards.a.int: Input should be a valid integer",
    ),
    (
        {"reward.json": "[" * 2000},
        "RecursionError",
        "harbor_trial_failed",
        "{dir}: maximum recursion depth exceeded while decoding a JSON array from a unicode string",
    ),
]


@pytest.mark.parametrize(("files", "error", "code", "reason"), UNSCORED)
def test_whatever_is_wrong_is_a_reason_with_its_code(
    verifier: Path, files: dict[str, str], error: str, code: str, reason: str
) -> None:
    for name, content in files.items():
        (verifier / name).write_text(content)
    assert read_score(str(verifier)) == Unscored(reason.format(dir=verifier), error, code)


def test_the_profile_reaches_both_kinds_of_file(verifier: Path) -> None:
    (verifier / "reward.txt").write_text("nan")
    assert isinstance(read_score(str(verifier)), Scored)
    text = read_score(str(verifier), HARBOR_0_25)
    (verifier / "reward.json").write_text('{"reward": "1"}')
    assert read_score(str(verifier)) == Scored({"reward": 1.0})
    document = read_score(str(verifier), HARBOR_0_25)
    code = "harbor_reward_parse_error"
    assert text == Unscored(
        f"Non-finite reward nan in text file {verifier}/reward.txt",
        "VerifierOutputParseError",
        code,
    )
    assert document == Unscored(
        f"Non-numeric reward '1' in JSON file {verifier}/reward.json",
        "VerifierOutputParseError",
        code,
    )


def test_reading_writes_nothing(verifier: Path) -> None:
    (verifier / "reward.json").write_text("{}")
    before = verifier.stat().st_mtime_ns
    read_score(str(verifier))
    assert [path.name for path in verifier.iterdir()] == ["reward.json"]
    assert verifier.stat().st_mtime_ns == before
