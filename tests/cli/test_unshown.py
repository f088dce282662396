"""Numbers that cannot be recomputed: no command takes them for shown."""

import json
from pathlib import Path

import pytest

from tests.audit.directories import copy_job
from tests.audit.doctors import Doctoring
from tests.audit.unshown_doctorings import UNSHOWN_DOCTORINGS
from tests.cli.programs import Proctor

POLICY = 'format = "proctor-policy-1"\nname = "p"\n[evidence]\nfollows = true\n'
WITH_TRIALS = [each for each in UNSHOWN_DOCTORINGS if each.name != "no trial at all"]


@pytest.mark.parametrize("doctoring", WITH_TRIALS, ids=lambda found: found.name)
def test_audit_check_and_gate_fail_with_a_code_of_its_own(
    proctor: Proctor, tmp_path: Path, doctoring: Doctoring
) -> None:
    job = copy_job(doctoring.job, tmp_path)
    doctoring.doctor(job)
    audited = proctor("audit", job, "--json")
    (document,) = json.loads(audited.out)["jobs"]
    assert (audited.code, document["verdict"]) == (1, "cannot be shown")
    assert (document["follows"], document["differences"]) == (False, [])
    assert document["unshown"]
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    checked = proctor("check", job, "--policy", policy, "--json")
    (submission,) = json.loads(checked.out)["submissions"]
    assert checked.code == 1
    assert {failure["code"] for failure in submission["failures"]} == {"not-shown"}
    gated = proctor("gate", job, "--min-mean", "0", "--check-evidence")
    assert gated.code == 7
    assert gated.out.splitlines()[-1] == "gate: MISSED: unshown (exit code 7)"
    against = proctor("gate", job, "--against", job, "--check-evidence", "--json")
    assert json.loads(against.out)["miss"] == "unshown"
