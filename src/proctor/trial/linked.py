"""Reward files that are odd: two of them, links, or changed after the tests had ended.

Links out of the trial are a finding, and the bytes that harbor reads take their place.

harbor follows such a link on the host, and its reward stands. A later reader of the job follows
none that leads out of the trial, so the file takes the link's place, with the bytes it led to:
only where they are the reward. A link to any other file of the host must not bring that file into
the evidence.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence

from proctor.digest import sha256_file
from proctor.errors import LinkedRewardError
from proctor.files import find_way_out, read_small
from proctor.reward.profile import HARBOR_0_13
from proctor.reward.read import LARGEST, read_score
from proctor.reward.score import Scored
from proctor.sentence import printable
from proctor.trial.environment import UNTOLD, Environment, OpenedFile, can_list
from proctor.trial.finding import FindingCode
from proctor.trial.paths import INSIDE
from proctor.trial.sitting import Sitting

_REWARDS = ("reward.json", "reward.txt")
_OUTPUT = "test-stdout.txt"


async def list_rewards(environment: Environment) -> Mapping[str, str | None]:
    """The reward files in an environment as the tests left them: digests by name.

    Empty where the environment cannot say that by itself.
    """
    if not can_list(environment):
        return {}
    places = [str(INSIDE.verifier_dir / name) for name in _REWARDS]
    try:
        seen = await environment.list_files(places, len(places))
    except Exception:  # noqa: BLE001 - an environment may raise anything; fetching them will tell
        return {}
    return {file.path.rpartition("/")[2]: file.sha256 for file in seen}


def find_odd_rewards(sitting: Sitting, before: Mapping[str, str | None]) -> None:
    """Add findings for reward files that the test script alone does not leave so."""
    verifier = sitting.paths.verifier_dir
    there = [name for name in _REWARDS if os.path.lexists(verifier / name)]
    if len(there) > 1:
        sitting.add_finding(
            FindingCode.TWO_REWARDS,
            "the verifier left both reward.json and reward.txt; reward.json counts, as in harbor",
        )
    for name in there:
        if before.get(name) is None or os.path.islink(verifier / name):
            continue
        with contextlib.suppress(OSError):
            if sha256_file(verifier / name) != before[name]:
                sitting.add_finding(
                    FindingCode.LATE_REWARD,
                    f"{name} changed after the test script had ended",
                    file=name,
                )


def find_killed(sitting: Sitting, rewards: Mapping[str, float] | None) -> None:
    """Add a finding for a reward above 0 of a test script that a signal ended."""
    if rewards and any(not value <= 0 for value in rewards.values()):
        sitting.add_finding(
            FindingCode.TESTS_KILLED, "a signal ended the test script, and there is a reward"
        )


def find_moved_rewards(sitting: Sitting, opened: Sequence[OpenedFile] | None) -> None:
    """Add a finding for reward files that nobody opened under their names.

    Where another file of the verifier's directory is gone, the tests may have renamed it.
    """
    if not opened or UNTOLD in opened:
        return
    verifier, inside = sitting.paths.verifier_dir, f"{INSIDE.verifier_dir}/"
    names = {each.path.removeprefix(inside) for each in opened if each.path.startswith(inside)}
    there = {name for name in _REWARDS if os.path.lexists(verifier / name)}
    gone = {name for name in names if not os.path.lexists(verifier / name)} - {_OUTPUT}
    for name in sorted(there - names):
        if not gone:
            sitting.add_finding(
                FindingCode.REWARD_MOVED,
                f"{name} was never opened under that name: it was moved or linked there",
                file=name,
            )


def keep_linked_rewards(sitting: Sitting) -> None:
    """Add a finding for each reward file that leads out of the trial, and keep what it leads to.

    Raises:
        LinkedRewardError: it leads to something else than a reward.
    """
    trial, verifier = str(sitting.paths.trial_dir), str(sitting.paths.verifier_dir)
    for name in _REWARDS:
        path = f"{verifier}/{name}"
        link = find_way_out(trial, path)
        if link is None:
            if os.path.islink(path):
                _find_link_inside(sitting, name, path)
            continue
        target = printable(os.path.realpath(path))
        sitting.add_finding(
            FindingCode.LINKED_REWARD,
            f"{name} was a link that led out of the trial, to {target}; it was read as harbor "
            "reads it",
            link=os.path.relpath(link, trial),
            target=target,
        )
        if not _decides(verifier, name):
            continue
        if not isinstance(read_score(verifier, HARBOR_0_13), Scored):
            # harbor's message would quote the file, and it may be any file of the host.
            raise LinkedRewardError(f"{path}: a link that leads out of the trial, to no reward")
        if link == path:
            _replace_link(path)


def _find_link_inside(sitting: Sitting, name: str, path: str) -> None:
    target = printable(os.readlink(path))
    sitting.add_finding(
        FindingCode.LINKED_REWARD,
        f"{name} was a link to {target}, inside the trial; it was read as harbor reads it",
        target=target,
    )


def _decides(verifier: str, name: str) -> bool:
    """Whether a reward file is there, and the one that is read: reward.json before reward.txt."""
    there = [each for each in _REWARDS if os.path.exists(f"{verifier}/{each}")]
    return there[:1] == [name]


def _replace_link(path: str) -> None:
    """The file that a link leads to in the place of the link; the link stays where none is read."""
    with contextlib.suppress(OSError):
        data = read_small(path, LARGEST)
        os.unlink(path)
        # Something inside may still run, and put another link there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o644)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
