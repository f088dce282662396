"""What a text says: its cues, by single words and short phrases. English only.

A text is lowered and split into words once; a word that is no cue costs one look-up, and a phrase
is looked for only where its two rarest words are. Of a long text only the beginning is looked at,
where an agent says what it is about to do, and whether it ends with a question. Each word or phrase
counts once.
"""

from typing import Final

HEAD: Final = 240
"""Characters from the beginning of a text that are looked at."""

type Cues = bytes
"""How much of each cue there is in a text, at the places below; 255 at most."""

LOOKS_BACK, FINDS_FAULT, WEIGHS, GUESSES, REASONS, LOOKS_AROUND, ASKS = range(7)
"""Holds work against what it should be; names a mistake; holds alternatives against each other;
says what might be; gives causes or orders steps; wants to see what is there; question marks."""
NO_CUES: Final[Cues] = bytes(7)

_WORDS: Final = (
    # looks_back
    "verify verifies verified verifying verification confirm confirms confirmed confirming validate"
    " validates validated validating validation sanity recheck rerun check checks checking checked"
    " test tests testing compare compared comparing comparison expected expect expectation"
    " agree agrees correct correctly target requirement requirements required requested integrity"
    " matches match identical regression acceptance criterion criteria consistent good fine works"
    " pass passes passed passing meets fits satisfied error fails failed bug broken",
    # finds_fault
    "mistake mistakes wrong incorrect incorrectly mismatch flaw slip missed forgot overlooked"
    " oversight discrepancy",
    # weighs
    "alternatively either options option candidates candidate alternatives alternative routes"
    " versus vs choice choices whether approaches ways possibilities tradeoff tradeoffs",
    # guesses
    "perhaps maybe might possibly presumably probably suspect suspects hypothesis guess unsure"
    " could seems seem wonder unclear plausible likely unlikely lean inclined odd hmm",
    # reasons
    "because therefore thus hence since so means implies otherwise then must consequently order"
    " plan step steps first second third finally next after before only needs follows cannot",
    # looks_around
    "look looking looks see overview inspect explore understand understanding find search know"
    " familiar start starting orient current existing structure",
)
_PHRASES: Final = (
    (
        *("make sure", "see whether", "see if", "should be", "should give", "double check"),
        *("as calculated", "read back", "look back", "last look", "final look", "works now"),
        *("try again", "one by one", "is usable", "like expected"),
    ),
    (
        *("do not agree", "does not match", "doesn t match", "don t match", "my own", "of mine"),
        *("not finished", "false alarm", "off by", "not right", "instead of"),
    ),
    (
        *("on the other hand", "two ways", "either way"),
        *("another option", "another way", "could also"),
    ),
    ("what if", "not sure", "don t know", "not clear", "what could", "what would"),
    ("i decide", "way out", "step by", "how to"),
    ("dealing with",),
)


def _split(text: str) -> frozenset[str]:
    return frozenset(text.split())


_USUAL = _split("a be in is to or not if on of my the by t as read again look other")


def _table() -> bytes:
    kept = b"abcdefghijklmnopqrstuvwxyz0123456789_"
    lowered = bytes(range(256)).lower()
    return bytes(byte if byte in kept or byte >= 128 else 32 for byte in lowered)


def _word_counts() -> dict[bytes, int]:
    return {word.encode(): 1 << 8 * at for at, words in enumerate(_WORDS) for word in words.split()}


def _phrases() -> dict[bytes, list[tuple[bytes, bytes, int]]]:
    """Phrases by their rarest word, the longest that is not among the usual ones, and the next."""
    found: dict[bytes, list[tuple[bytes, bytes, int]]] = {}
    for at, phrases in enumerate(_PHRASES):
        for phrase in phrases:
            ranked = sorted(phrase.split(), key=lambda word: (word in _USUAL, -len(word)))
            rarest, other = (word.encode() for word in ranked[:2])
            found.setdefault(rarest, []).append((other, f" {phrase} ".encode(), 1 << 8 * at))
    return found


_TABLE: Final = _table()
_OF_PHRASE: Final = _phrases()
_PHRASED: Final = frozenset(_OF_PHRASE)
_OTHERS: Final = frozenset(other for held in _OF_PHRASE.values() for other, _, _ in held)
_OF_WORD: Final = {**dict.fromkeys(_PHRASED | _OTHERS, 0), **_word_counts()}
"""What a word adds to all counts, each of which is one byte of a number."""
_LOOKED_FOR: Final = frozenset(_OF_WORD)


def find_cues(text: str) -> Cues:
    """The cues in a text."""
    beginning = text[:HEAD]
    words = beginning.encode("utf-8", "replace").translate(_TABLE).split()
    found = _LOOKED_FOR.intersection(words)
    asks = _count_questions(beginning, text) if "?" in beginning or text[-1:] == "?" else 0
    if not found:
        return bytes((0, 0, 0, 0, 0, 0, asks)) if asks else NO_CUES
    counts = sum(map(_OF_WORD.__getitem__, found))
    for word in found & _PHRASED:
        for other, phrase, count in _OF_PHRASE[word]:
            if other in found and phrase in b" %b " % b" ".join(words):
                counts += count
    return (counts + (asks << 8 * ASKS)).to_bytes(7, "little")


def _count_questions(beginning: str, text: str) -> int:
    # Of an expression such as (?=x), the mark asks nothing.
    inside = beginning.count("? ") + beginning.count("?\n")
    return min(inside + text.endswith("?"), 255)
