"""What a text says: the cues in it, by single words and short phrases.

A text is lowered and split into words once; a word that is no cue costs one look-up, and phrases
are looked for only where their first word is. Long texts are cut: an agent says what it is about
to do at the beginning of a turn or at its end. English only.
"""

from typing import Final

HEAD: Final = 1200
"""Characters from the beginning of a text that are looked at."""
TAIL: Final = 600
"""Characters from its end."""

CHECKS_WORK: Final = "looks back at its work"
FINDS_FAULT: Final = "finds a fault"
WEIGHS: Final = "weighs alternatives"
GUESSES: Final = "forms a guess"
ASKS: Final = "asks"
REASONS: Final = "reasons"
PLANS: Final = "plans"
ACTS: Final = "announces an action"

_WORDS: Final = {
    CHECKS_WORK: (
        "verify verifies verified verifying verification confirm confirms confirmed confirming"
        " validate validates validated validating validation sanity recheck rerun recalculate"
        " cross-check double-check crosscheck doublecheck"
    ),
    FINDS_FAULT: "mismatch incorrect wrong mistake",
    WEIGHS: "alternatively either whether option options alternative alternatives versus vs",
    GUESSES: "perhaps maybe might possibly presumably suspect hypothesis guess unsure unclear wonder",
    REASONS: "because therefore thus hence since implies consequently means follows",
    PLANS: "first then next finally second third afterwards plan strategy approach steps",
}
_PHRASES: Final = {
    CHECKS_WORK: (
        "let me check",
        "check that",
        "check whether",
        "check if",
        "check the result",
        "check the output",
        "check it",
        "make sure",
        "makes sure",
        "test it",
        "run the tests",
        "run tests",
        "as expected",
        "as required",
        "re run",
        "look back",
        "double check",
        "cross check",
        "read back",
        "matches the",
        "compare with",
        "compare against",
        "compare the",
        "try again",
        "all tests",
        "tests pass",
        "works now",
        "see whether it",
    ),
    FINDS_FAULT: (
        "but expected",
        "does not match",
        "doesn t match",
        "not what i",
        "that s not right",
        "is off by",
        "my mistake",
        "i missed",
        "i forgot",
        "i made",
    ),
    WEIGHS: (
        "could also",
        "another option",
        "another way",
        "on the other hand",
        "what if",
        "or should",
        "several ways",
        "two ways",
        "which one",
        "instead of",
        "trade off",
        "one possibility",
        "different approach",
    ),
    GUESSES: (
        "not sure",
        "could be",
        "may be",
        "don t know",
        "not clear",
        "i think it",
        "it seems",
        "seems like",
        "looks like it",
    ),
    PLANS: ("i need to", "i will", "i ll", "step 1", "step one"),
}


def _table() -> bytes:
    kept = b"abcdefghijklmnopqrstuvwxyz0123456789_"
    lowered = bytes(range(256)).lower()
    return bytes(byte if byte in kept or byte >= 128 else 32 for byte in lowered)


_TABLE: Final = _table()
_OF_WORD: Final = {
    word.encode(): cue for cue, words in _WORDS.items() for word in words.replace("-", " ").split()
}
_OF_FIRST: Final[dict[bytes, list[tuple[bytes, str]]]] = {}
for _cue, _phrases in _PHRASES.items():
    for _phrase in _phrases:
        _first = _phrase.split()[0].encode()
        _OF_FIRST.setdefault(_first, []).append((f" {_phrase} ".encode(), _cue))
_LOOKED_FOR: Final = frozenset(_OF_WORD) | frozenset(_OF_FIRST)


def find_cues(text: str) -> dict[str, int]:
    """How many different words and phrases of each cue a text holds."""
    if len(text) > HEAD + TAIL:
        text = f"{text[:HEAD]} {text[-TAIL:]}"
    words = text.encode(errors="replace").translate(_TABLE).split()
    found = _LOOKED_FOR.intersection(words)
    cues: dict[str, int] = {}
    if not found:
        return cues
    plain = b""
    for word in found:
        cue = _OF_WORD.get(word)
        if cue is not None:
            cues[cue] = cues.get(cue, 0) + 1
        if word in _OF_FIRST:
            plain = plain or b" %b " % b" ".join(words)
            for phrase, cue in _OF_FIRST[word]:
                if phrase in plain:
                    cues[cue] = cues.get(cue, 0) + 1
    return cues
