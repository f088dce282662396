"""Every scripted falsification is found, named by kind and file; no honest job is accused."""

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from proctor.audit.findings import Finding, Kind
from proctor.audit.job import Verdict, audit_job
from proctor.cli.audit import command
from tests.audit.directories import JOBS, copy_job, every_job, listing
from tests.audit.doctors import Doctoring
from tests.audit.hiding_doctorings import HIDING_DOCTORINGS
from tests.audit.result_doctorings import RESULT_DOCTORINGS
from tests.audit.trial_doctorings import TRIAL_DOCTORINGS
from tests.audit.unshown_doctorings import UNSHOWN_DOCTORINGS

DOCTORINGS = [*TRIAL_DOCTORINGS, *HIDING_DOCTORINGS, *RESULT_DOCTORINGS]

every_doctoring = pytest.mark.parametrize("doctoring", DOCTORINGS, ids=lambda found: found.name)


def kinds_by_file(job: Path, findings: list[Finding]) -> dict[str, set[Kind]]:
    """Kinds of findings by file, trials without their suffix."""
    found: dict[str, set[Kind]] = {}
    for finding in findings:
        file = re.sub(r"__\w{7}(?=/|$)", "", os.path.relpath(finding.path, job))
        found.setdefault(file, set()).add(finding.kind)
    return found


def test_there_are_doctorings_enough() -> None:
    assert len({doctoring.name for doctoring in DOCTORINGS}) == len(DOCTORINGS) >= 60
    doctored = {kind for row in DOCTORINGS for kinds in row.findings.values() for kind in kinds}
    assert doctored == {kind for kind in Kind if kind.is_difference}


@every_doctoring
def test_a_doctored_job_does_not_follow(doctoring: Doctoring, tmp_path: Path) -> None:
    job = copy_job(doctoring.job, tmp_path)
    doctoring.doctor(job)
    before = listing(job)
    audit = audit_job(str(job))
    assert not audit.follows
    assert kinds_by_file(job, audit.differences) == doctoring.findings
    result = CliRunner().invoke(command, [str(job)], standalone_mode=False)
    assert result.return_value == 1
    for kinds in doctoring.findings.values():
        assert all(str(kind) in result.stdout for kind in kinds)
    assert listing(job) == before


@pytest.mark.parametrize("doctoring", UNSHOWN_DOCTORINGS, ids=lambda found: found.name)
def test_a_number_that_nobody_can_recompute_cannot_be_shown(
    doctoring: Doctoring, tmp_path: Path
) -> None:
    job = copy_job(doctoring.job, tmp_path)
    doctoring.doctor(job)
    audit = audit_job(str(job))
    assert (audit.verdict, audit.differences) == (Verdict.CANNOT_BE_SHOWN, [])
    assert kinds_by_file(job, audit.unshown) == doctoring.findings
    result = CliRunner().invoke(command, [str(job)], standalone_mode=False)
    assert result.return_value == 1
    assert result.stdout.startswith(f"{job}: the published numbers cannot be shown to follow")
    for kinds in doctoring.findings.values():
        assert all(f"\n  cannot be shown: {kind}  " in result.stdout for kind in kinds)


def test_every_kind_that_cannot_be_shown_is_tried() -> None:
    rows = [kinds for row in UNSHOWN_DOCTORINGS for kinds in row.findings.values()]
    assert set().union(*rows) == {kind for kind in Kind if kind.is_unshown}


@every_job
def test_an_untouched_job_follows(name: str) -> None:
    audit = audit_job(str(JOBS / name))
    assert (audit.verdict, audit.differences, audit.unshown) == (Verdict.FOLLOWS, [], [])


@every_job
def test_the_command_passes_an_untouched_job(name: str) -> None:
    result = CliRunner().invoke(command, [str(JOBS / name)], standalone_mode=False)
    assert (result.return_value, result.exception) == (0, None)
    assert result.stdout.startswith(f"{JOBS / name}: the published numbers follow")
