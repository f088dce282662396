"""Check certificates by recomputing them."""

from proctor.audit.certificate import check_certificate, find_unchecked, parse_certificate
from proctor.audit.checks.checked import Checked
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.errors import CertificateError
from proctor.files import read_input

_FOLLOWS = "every number follows from its operands"
_DIFFERS = "a number does not follow from its operands"
_NOT_SHOWN = "the outcome depends on a number that its operands cannot confirm"


def check_certificate_file(path: str) -> Checked:
    """Recompute a certificate.

    Raises:
        CertificateError: it is not a certificate.
        InputError: it cannot be read.
    """
    certificate = parse_certificate(read_input(path), path)
    try:
        difference = check_certificate(certificate)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from error
    unchecked = find_unchecked(certificate)
    problems = [] if difference is None else [Diagnostic("differs", str(difference))]
    problems += [Diagnostic("not-shown", f"{each} cannot be recomputed") for each in unchecked]
    summary = _DIFFERS if difference is not None else _NOT_SHOWN if unchecked else _FOLLOWS
    return Checked(
        path=path, thing=FileKind.CERTIFICATE, summary=summary, diagnostics=tuple(problems)
    )
