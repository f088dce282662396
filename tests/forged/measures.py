"""What the checks say of a submission: for each command, the reasons it gives; none: it passes."""

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from proctor.audit.job import audit_job
from proctor.errors import InputError
from proctor.ledger.claims.checks import check_bundle_file
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.verification.verify import verify_ledger
from proctor.report.policy.as_sealed import compare_with_ledger
from proctor.report.policy.checking import check_submission
from proctor.report.policy.document import load_policy
from proctor.report.policy.from_jobs import load_jobs_submission
from proctor.report.policy.from_ledger import verify_sealed
from tests.cli.programs import environment
from tests.forged.honest import POLICY, HandedIn
from tests.ledger.hostile import pack
from tests.ledger.test_bundle import write_members

type Reasons = tuple[str, ...]
RERUN = "rerun"
_RERUNS: dict[int, Reasons] = {0: (), 1: ("reward differs",), 3: ("not reproduced",)}
"""By the exit code; any other is no answer."""


@dataclass(frozen=True)
class Measure:
    """One command, as the keeper of a board would give it."""

    title: str
    """For the page."""
    measure: Callable[[HandedIn], Reasons]


def audit(handed: HandedIn) -> Reasons:
    """`proctor audit JOB`."""
    found = audit_job(str(handed.job))
    return _once(finding.kind for finding in [*found.differences, *found.unshown])


def check(handed: HandedIn) -> Reasons:
    """`proctor check JOB --policy P`."""
    submission = load_jobs_submission(str(handed.job))
    return _once(check_submission(load_policy(str(POLICY)), submission).codes)


def check_with_ledger(handed: HandedIn) -> Reasons:
    """`proctor check JOB --policy P --ledger L`."""
    sealed = verify_sealed(handed.ledger)
    submission = replace(load_jobs_submission(str(handed.job)), sealed=sealed)
    if not sealed.damage:
        with OpenLedger.open(handed.ledger) as ledger:
            submission = compare_with_ledger(submission, ledger, sealed)
    return _once(check_submission(load_policy(str(POLICY)), submission).codes)


def verify(handed: HandedIn) -> Reasons:
    """`proctor ledger verify`."""
    return _once(damage.kind for damage in verify_ledger(handed.ledger).damage)


def verify_since(handed: HandedIn) -> Reasons:
    """`proctor ledger verify --since KEPT`."""
    return _once(damage.kind for damage in verify_ledger(handed.ledger, since=[handed.kept]).damage)


def check_bundled(handed: HandedIn) -> Reasons:
    """`proctor check BUNDLE`: the one that was handed over, else one of all of the ledger."""
    if not handed.bundle.exists():
        write_members(handed.bundle, pack(handed.ledger))
    return _once(found.code for found in check_bundle_file(str(handed.bundle)).diagnostics)


def rerun(handed: HandedIn) -> Reasons:
    """`proctor audit JOB --rerun`: all trials."""
    words = [
        "audit",
        str(handed.job),
        "--rerun",
        "9",
        "--seed",
        "1",
        "-o",
        str(handed.place / "again"),
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "proctor", *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return _RERUNS[ran.returncode]


def _once(reasons: Iterable[str]) -> Reasons:
    return tuple(sorted({str(reason) for reason in reasons}))


MEASURES = [
    Measure("audit", audit),
    Measure("check", check),
    Measure("check --ledger", check_with_ledger),
    Measure("verify", verify),
    Measure("verify --since", verify_since),
    Measure("bundle", check_bundled),
    Measure(RERUN, rerun),
]


def measure(handed: HandedIn, which: Measure) -> Reasons:
    """What one command says; input that it refuses is caught too."""
    try:
        return which.measure(handed)
    except InputError:
        return ("refused",)
