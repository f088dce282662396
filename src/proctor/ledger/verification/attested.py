"""Whether the log holds what attestations say of their experiments.

It takes a second reading of the log, and only where there are attestations.
"""

from proctor.errors import DamageError
from proctor.ledger.attestation import find_false, survey_log
from proctor.ledger.verification.damage import DamageKind
from proctor.ledger.verification.steps import Check, Scope
from proctor.sentence import count_of


def check_attestations(check: Check, scope: Scope) -> None:
    """Recompute every attestation; one that the log contradicts is damage."""
    stated = scope.entries(scope.found.attestations)
    if not stated:
        return
    try:
        survey = survey_log(check.entries, scope.size)
    except DamageError as error:
        said = count_of(len(stated), "attestation")
        check.findings.note(f"{said} not recomputed, since the log cannot be read: {error}")
        return
    for seq, message in find_false(survey, stated):
        where = scope.found.where(seq)
        check.findings.add(DamageKind.FALSE_ATTESTATION, where, message, seq)
