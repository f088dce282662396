"""Findings of earlier attempts at a trial, for the attempt that follows: no retry wipes them off.

They are read from `<trial>/attempts/N/findings.json`, each from the attempt that it was made in.
Nothing here writes a file.
"""

from collections.abc import Iterator

import msgspec

from proctor.files import read_inside
from proctor.job.kept import ATTEMPTS, list_attempts
from proctor.trial.finding import ATTEMPT, Finding, Level, level_of

MOST = 100
"""Findings that are carried on, of all earlier attempts together."""
_LARGEST = 16 << 20
_ORDER = (Level.ALARM, Level.NOTICE, Level.INFO)
_decode = msgspec.json.Decoder(list[Finding]).decode


class Carried(msgspec.Struct, frozen=True):
    """What earlier attempts leave to the next one."""

    findings: tuple[Finding, ...]
    """By attempt; each names its attempt in its message and in `detail.attempt`."""
    problems: tuple[str, ...]
    """What could not be carried on, as sentences."""


def carry_findings(trial_dir: str) -> Carried:
    """The findings of all attempts at a trial that were kept; of too many, the gravest."""
    found: list[Finding] = []
    problems: list[str] = []
    for number in list_attempts(trial_dir):
        try:
            found += _load(trial_dir, number)
        except FileNotFoundError:
            # An attempt without findings has no such file.
            continue
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            path = f"{trial_dir}/{ATTEMPTS}/{number}/findings.json"
            problems.append(f"{path}: the findings of attempt {number} cannot be read: {error}")
    if len(found) > MOST:
        problems.append(
            f"{trial_dir}: {len(found) - MOST} of {len(found)} findings of earlier attempts are "
            f"only in {ATTEMPTS}/; the trial lists {MOST}"
        )
    gravest = sorted(found, key=lambda each: _ORDER.index(level_of(each.code)))[:MOST]
    return Carried(tuple(sorted(gravest, key=_number_of)), tuple(problems))


def _load(trial_dir: str, number: int) -> Iterator[Finding]:
    data = read_inside(trial_dir, f"{trial_dir}/{ATTEMPTS}/{number}/findings.json", _LARGEST)
    for finding in _decode(data):
        # Those that this attempt was left by others are read where they were made.
        if ATTEMPT not in finding.detail:
            yield msgspec.structs.replace(
                finding,
                message=f"attempt {number}: {finding.message}",
                detail={**finding.detail, ATTEMPT: number},
            )


def _number_of(finding: Finding) -> int:
    return int(str(finding.detail[ATTEMPT]))
