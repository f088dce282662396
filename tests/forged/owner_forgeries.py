"""Forgeries of an owner who appends to the ledger by hand with the key, unasked by sealing."""

import json

import msgspec

from proctor.ledger import query
from proctor.ledger.entry import TrialEntry, decode_line
from proctor.ledger.keys import SigningKey, load_key, make_key
from proctor.ledger.log import FileLog, read_lines
from proctor.ledger.note import VerifierKey
from tests.forged.directory_forgeries import edit_reward_everywhere
from tests.forged.forger import opened_by_owner
from tests.forged.honest import NAME, HandedIn
from tests.ledger.by_hand import append_by_hand, hand_over

SMALL_ORDER = bytes.fromhex("01" + "00" * 31)


def find_key(handed: HandedIn) -> SigningKey:
    """The submitter's key."""
    return load_key(handed.keys / "proctor" / "keys" / "default")


def find_trial(handed: HandedIn, name: str) -> TrialEntry:
    """The entry of a trial, as it was sealed."""
    entries = [decode_line(line.data, "a line") for line in read_lines(FileLog(handed.ledger))]
    trials = [entry for entry in entries if isinstance(entry, TrialEntry)]
    return next(each for each in trials if json.loads(bytes(each.record))["trial_id"] == name)


def better(entry: TrialEntry, **changes: object) -> TrialEntry:
    """The same trial with a reward of 1."""
    record = json.loads(bytes(entry.record))
    record["evaluation"]["reward"] = 1.0
    text = json.dumps({**record, **changes}, separators=(",", ":")).encode()
    return msgspec.structs.replace(entry, record=msgspec.Raw(text))


def seal_twice(handed: HandedIn) -> None:
    """A failed trial once more, with a better reward, and the directory made to fit."""
    failed = handed.trials("proof")[0]
    append_by_hand(handed.ledger, find_key(handed), better(find_trial(handed, failed.name)))
    edit_reward_everywhere(handed)


def withhold_and_seal_again(handed: HandedIn) -> None:
    """A failed trial withheld, and sealed under the same name with a better reward."""
    failed = handed.trials("proof")[0]
    entry = find_trial(handed, failed.name)
    with opened_by_owner(handed) as ledger:
        row = query.find_trial(ledger, f"{NAME}/{failed.name}")
        ledger.withhold(row, reason="a key was in it", author="me")
    append_by_hand(handed.ledger, find_key(handed), better(entry))
    edit_reward_everywhere(handed)


def seal_a_path(handed: HandedIn) -> None:
    """A trial more, whose name leads out of every directory it is written to."""
    entry = find_trial(handed, handed.trials("proof")[0].name)
    append_by_hand(handed.ledger, find_key(handed), better(entry, trial_id="../../../../outside"))


def give_the_key_back(handed: HandedIn) -> None:
    """The key is replaced, and the one that was replaced signs again."""
    first, second = find_key(handed), make_key(handed.place / "second", "example.org/second")
    append_by_hand(handed.ledger, second, hand_over(handed.ledger, first, second))
    append_by_hand(handed.ledger, first, hand_over(handed.ledger, second, first))


def name_a_weak_key(handed: HandedIn) -> None:
    """A key that anybody's signature fits is named the successor, and signs."""
    weak = VerifierKey("example.org/weak", SMALL_ORDER)
    append_by_hand(handed.ledger, _Anybody(weak), hand_over(handed.ledger, find_key(handed), weak))


class _Anybody:
    """Signs without a secret: with the neutral point as key and R, S = 0 fits every message."""

    def __init__(self, verifier: VerifierKey) -> None:
        self.verifier = verifier

    def sign(self, message: bytes) -> bytes:
        """The same for every message."""
        return SMALL_ORDER + bytes(32)
