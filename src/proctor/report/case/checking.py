"""`proctor check` of a case file: its data, and the page around it.

Nothing in the page is executed. The checks are those of the page's script, and one more that the
page cannot make: whether the script is the one that proctor writes.
"""

from collections.abc import Iterator, Sequence

from proctor import __version__
from proctor.audit.checks.checked import Checked, Tally
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.digest import sha256_hex
from proctor.errors import (
    DamageError,
    InputError,
    NoteError,
    ProofFileError,
    SignatureError,
)
from proctor.files import read_small
from proctor.ledger.claims.document import parse_hash
from proctor.ledger.claims.proof import read_entry
from proctor.ledger.claims.trust import (
    find_unchecked_signatures,
    judge_signatures,
    load_verifier_key,
)
from proctor.ledger.entry import (
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    WithholdEntry,
    decode_line,
)
from proctor.ledger.handover import Handover, follow_handovers
from proctor.ledger.note import VerifierKey
from proctor.ledger.signature import check_signature
from proctor.ledger.tree import check_inclusion, leaf_hash, root_before
from proctor.record.reasons import name_outcome
from proctor.report.case.derivation import find_unchecked_reward, judge_reward
from proctor.report.case.document import parse_case
from proctor.report.case.opened import OpenedCase, open_case
from proctor.report.case.page import FoundPage, differs_from, parse_page, render_page, script_digest
from proctor.sentence import count_of, reason_of

_ELSE = (
    "that no other entry of the ledger refers to it: this needs the ledger",
    "that the run happened as the record says: an owner can seal an invented one",
)


def check_case_file(path: str, given: Sequence[str] = ()) -> Checked:
    """Check a case file: its proofs, its evidence, its reward, and the page around them.

    Raises:
        InputError: it cannot be read.
        KeyFileError: a given key is not a public key.
    """
    keys = [load_verifier_key(key) for key in given]
    try:
        page = read_small(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason_of(error)}") from error
    try:
        found = parse_page(page, path)
        case = parse_case(found.data, path)
        opened = open_case(case, path)
    except (ProofFileError, NoteError, DamageError) as error:
        return Checked(
            path=path,
            thing=FileKind.CASE,
            summary="it cannot be parsed, so it proves nothing",
            diagnostics=(Diagnostic("damaged", str(error)),),
        )
    tally = Tally()
    tally.add(_find_problems(opened))
    tally.add(judge_signatures(opened.checkpoint, keys, "the checkpoint", _find_keys(opened)))
    tally.add(_judge_page(page, opened))
    return Checked(
        path=path,
        thing=FileKind.CASE,
        summary=_summarize(opened),
        diagnostics=tally.kept,
        more=tally.more,
        unchecked=tuple(_find_unchecked(opened, found, keys)),
    )


def _summarize(opened: OpenedCase) -> str:
    evaluation, reason = opened.entry.at("record", "evaluation"), opened.entry.at("reason_code")
    reward = evaluation.at("reward")
    has_rewards = reason.is_nothing and not evaluation.at("breakdown").is_nothing
    unscored = name_outcome(None, has_rewards=has_rewards)
    score = unscored if reward.is_nothing else f"reward {reward.say()}"
    tree = opened.checkpoint.tree
    embedded = sum(file.sha256 in opened.files for file in opened.evidence)
    return (
        f"{opened.name}, {score}, entry {opened.case.trial} of {tree.size:,} of "
        f"{opened.checkpoint.origin}, {embedded:,} of "
        f"{count_of(len(opened.evidence), 'file')} of evidence in it"
    )


def _find_problems(opened: OpenedCase) -> Iterator[Diagnostic]:
    yield from _check_entries(opened)
    yield from _check_signer(opened)
    for file in opened.evidence:
        if file.sha256 in opened.altered:
            message = f"{file.path} is not what was sealed: its SHA-256 is not {file.sha256}"
            yield Diagnostic("altered-evidence", message)
    yield from _check_left_out(opened)
    yield from judge_reward(opened)
    yield from _check_remarks(opened)


def _check_entries(opened: OpenedCase) -> Iterator[Diagnostic]:
    tree = opened.checkpoint.tree
    for entry in opened.case.entries:
        try:
            path = [parse_hash(node, f"entry {entry.seq}: path") for node in entry.path]
            if entry.line is None:
                leaf = parse_hash(entry.leaf or "", f"entry {entry.seq}: leaf")
            else:
                leaf = leaf_hash(entry.line.encode())
            check_inclusion(leaf, entry.seq, tree.size, path, tree.root)
            if entry.line is not None:
                read_entry(entry.line.encode(), entry.seq)
        except (DamageError, ProofFileError) as error:
            yield Diagnostic("not-proven", str(error))


def _check_signer(opened: OpenedCase) -> Iterator[Diagnostic]:
    """Check that the checkpoint is signed by the key that the ledger's entries name."""
    if not opened.keys or opened.keys[0].seq != 0:
        yield Diagnostic(
            "no-key", "the ledger's first entry, which names its key, is not in the page"
        )
        return
    try:
        check_signature(opened.checkpoint, _follow_keys(opened)[-1], "the checkpoint")
    except (SignatureError, DamageError, ProofFileError) as error:
        yield Diagnostic("bad-signature", str(error))


def _find_keys(opened: OpenedCase) -> list[VerifierKey]:
    """The ledger's keys; empty if they do not follow from each other, see `_check_signer`."""
    try:
        return _follow_keys(opened)
    except (DamageError, ProofFileError):
        return []


def _follow_keys(opened: OpenedCase) -> list[VerifierKey]:
    """The ledger's keys, each named by the one before it for its position in the log."""
    size = opened.checkpoint.tree.size
    paths = {each.seq: each.path for each in opened.case.entries}
    handovers = []
    for entry in opened.keys:
        path = [parse_hash(node, f"entry {entry.seq}: path") for node in paths.get(entry.seq, [])]
        handovers.append(Handover(entry, root_before(entry.seq, size, path)))
    return follow_handovers(handovers, opened.checkpoint.origin)


def _check_left_out(opened: OpenedCase) -> Iterator[Diagnostic]:
    withheld = _find_withheld(opened)
    for file in opened.evidence:
        if file.sha256 in opened.files or file.sha256 in opened.altered:
            continue
        why = opened.left_out.get(file.sha256)
        if why is None:
            message = f"{file.path} is named by the entry, but missing in the page without a reason"
            yield Diagnostic("missing-evidence", message)
        elif why == "withheld" and file.sha256 not in withheld:
            message = f"{file.path} is marked as withheld, but no entry in the page withholds it"
            yield Diagnostic("missing-evidence", message)


def _remarks(opened: OpenedCase) -> Iterator[tuple[int, object]]:
    for seq, entry in opened.remarks:
        if entry is not None:
            yield seq, decode_line(entry.raw, f"entry {seq}")


def _find_withheld(opened: OpenedCase) -> set[str]:
    return {
        sha256
        for _, entry in _remarks(opened)
        if isinstance(entry, WithholdEntry) and entry.subject
        if entry.subject.record == opened.record
        for sha256 in entry.artifacts
    }


def _check_remarks(opened: OpenedCase) -> Iterator[Diagnostic]:
    for seq, entry in _remarks(opened):
        match entry:
            case SupersedeEntry():
                named = {entry.subject.record, entry.by.record}
            case ReviewEntry() | RescoreEntry():
                named = {entry.subject.record}
            case WithholdEntry():
                named = {entry.subject.record} if entry.subject else set()
            case _:
                named = set()
        if opened.record not in named:
            yield Diagnostic("foreign-entry", f"entry {seq} refers to another trial")


def _judge_page(page: bytes, opened: OpenedCase) -> Iterator[Diagnostic]:
    """Compare the page with what this version writes around the same data."""
    case = opened.case
    if case.script != script_digest() and case.proctor != __version__:
        return
    wanted = render_page(opened)
    if page != wanted:
        message = f"the page is not what proctor {__version__} writes for its data"
        yield Diagnostic("page-differs", f"{message}: {differs_from(page, wanted)}")
        return
    message = f"the page and its script are exactly what proctor {__version__} writes"
    yield Diagnostic("own-page", message, is_problem=False)


def _find_unchecked(
    opened: OpenedCase, found: FoundPage, keys: Sequence[VerifierKey]
) -> Iterator[str]:
    case = opened.case
    if case.script != script_digest() and case.proctor != __version__:
        yield (
            f"what the page shows: it was written by proctor {case.proctor!r}, "
            f"and its script (SHA-256 {sha256_hex(found.script.encode())}) is unknown to "
            f"{__version__}; rely on this check, not on the page"
        )
    yield from find_unchecked_signatures([opened.checkpoint], keys, _find_keys(opened))
    for file in opened.evidence:
        if file.sha256 not in opened.files and (why := opened.left_out.get(file.sha256)):
            reason = "withheld" if why == "withheld" else "too large to be embedded"
            yield f"{file.path}: not in the page ({reason}), SHA-256 {file.sha256}"
    if (reward := find_unchecked_reward(opened)) is not None:
        yield reward
    yield from _ELSE
