"""The rules that label every turn of an agent by its words and actions. Uses no model.

A turn is a step above 0 with a text or a tool call of the assistant; warm-up calls are left out.
The first rule that matches decides (docs/reference/summaries.md lists them in this order), and
names the cue. Rules use the text and reasoning of the turn, what its tool calls do, and of earlier
turns which files they wrote, what they ran, and whether they produced anything.

    labels = classify(entries)

The same entries give the same labels on any machine; RULES_VERSION changes with every rule. Cues
are single words and short phrases, English only, searched at the beginning of a text, where an
agent says what it is about to do. Each word or phrase counts once.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from proctor.traces.entry import Entry
from proctor.traces.labels import (
    DELIBERATION,
    EXECUTION,
    EXPLORATION,
    VERIFICATION,
    Label,
    list_thoughts,
)
from proctor.traces.tool_actions import (
    CHECKS,
    ENDS,
    LOOKS,
    PROBES,
    RUNS,
    THINKS,
    WAITS,
    WRITES,
    read_call,
)

HEAD: Final = 240
"""Characters at the beginning of a text that are searched for cues."""

type Cues = bytes
"""The count of each cue in a text, at the indexes below; at most 255."""

LOOKS_BACK, FINDS_FAULT, WEIGHS, GUESSES, REASONS, LOOKS_AROUND, ASKS = range(7)
"""Compares work with expectations; names a mistake; weighs alternatives; guesses; gives causes or
orders steps; explores what exists; question marks."""
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
    """Phrases by their rarest word (the longest that is not common), with the next rarest."""
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
# What a word adds to all counts, each of which is one byte of a number.
_OF_WORD: Final = {**dict.fromkeys(_PHRASED | _OTHERS, 0), **_word_counts()}
_LOOKED_FOR: Final = frozenset(_OF_WORD)


def count_cues(text: str) -> Cues:
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
    # The question mark of a regular expression such as (?=x) is not a question.
    inside = beginning.count("? ") + beginning.count("?\n")
    return min(inside + text.endswith("?"), 255)


RULES_VERSION: Final = "1"

_SURENESS: Final = (0.55, 0.65, 0.75, 0.85, 0.95, 0.5)
"""Confidence by the number of cues beyond the one needed; the last (-1): no cue at all."""
_MOST_EXTRA: Final = 4
"""More of them make it no surer."""
_ARGUMENT: Final = 300
"""Characters of text beside an action that are taken for an argument, if causes are given."""
_THOUGHT: Final = 120
"""Characters of text without an action that are taken for reasoning."""
_MOST_REMEMBERED: Final = 100_000
"""Files and commands of earlier turns; beyond that all are forgotten."""
_WARMUP: Final = "warmup"


def classify(entries: Iterable[Entry]) -> tuple[Label, ...]:
    """The label of every turn, by step."""
    classifier = Classifier()
    for entry in entries:
        classifier.add(entry)
    return classifier.finish()


# Facts about a turn other than the actions of its calls, as further bits of the same number.
# An earlier turn ran the same command.
_AGAIN: Final = 1 << 8
# Shows or tries a file that an earlier turn wrote.
_BACK: Final = 1 << 9
# An earlier turn has written a file.
_CHANGED: Final = 1 << 10
# An earlier turn has produced something.
_ACTED: Final = 1 << 11
# The last turn of the trace.
_LAST: Final = 1 << 12
# Its last action is a check or a look.
_CHECKED_LAST: Final = 1 << 13
# Its last action is a check.
_TESTED_LAST: Final = 1 << 14
_SHOWING: Final = CHECKS | LOOKS
_DOES: Final = CHECKS | WRITES | LOOKS | RUNS | PROBES | ENDS | WAITS
"""Everything that touches something."""


class Classifier:
    """Labels turns as entries are added; memory grows with the turns, not with their texts."""

    def __init__(self) -> None:
        self._given: dict[int, _Decision] = {}
        """The decision for each turn, by step."""
        self._step = 0
        self._texts: list[str] = []
        self._calls: list[Entry] = []
        self._has_spoken = False
        self._before = 0
        """_CHANGED and _ACTED, once they are true."""
        self._written: set[str] = set()
        self._ran: set[str] = set()

    def add(self, entry: Entry) -> None:
        """Add the next entry of the trace."""
        if entry.step != self._step:
            # Whether a step is the last one is known only when another begins, or at the end.
            if self._has_spoken:
                self._close(is_last=False)
            self._step = entry.step
        role = entry.role
        if role == "tool_result" or not entry.step or entry.call_type == _WARMUP:
            return
        if role == "tool_call":
            self._has_spoken = True
            self._calls.append(entry)
        elif role == "assistant":
            self._has_spoken = True
            if entry.content:
                self._texts.append(entry.content)
            if entry.metadata:
                self._texts.extend(list_thoughts(entry.metadata))

    def finish(self) -> tuple[Label, ...]:
        """All labels, by step."""
        self._close_last()
        return tuple(_make_label(step, *self._given[step]) for step in sorted(self._given))

    def count(self) -> dict[str, int]:
        """Count each label that was given: all that a summary needs."""
        self._close_last()
        counts: dict[str, int] = {}
        for label, _, _ in self._given.values():
            counts[label] = counts.get(label, 0) + 1
        return counts

    def _close_last(self) -> None:
        if self._has_spoken:
            self._close(is_last=True)

    def _close(self, *, is_last: bool) -> None:
        """Label the turn that has ended, and remember what it did."""
        texts, calls, step = self._texts, self._calls, self._step
        text = "" if not texts else texts[0] if len(texts) == 1 else "\n".join(texts)
        facts = self._before | _LAST if is_last else self._before
        if calls:
            facts |= self._look(calls)
            self._calls = []
        decision = _decide(text, facts)
        # A step number can occur again later in the trace: its first label stays.
        self._given.setdefault(step, decision)
        if facts & WRITES:
            self._before = _CHANGED | _ACTED
        elif facts & _DOES and decision[0] is EXECUTION:
            self._before |= _ACTED
        if texts:
            self._texts = []
        self._has_spoken = False

    def _look(self, calls: Iterable[Entry]) -> int:
        """The facts about calls, given what came before them; remembers them for later turns."""
        facts, written, ran = 0, self._written, self._ran
        for call in calls:
            does, last, names_read, names_written, runs = read_call(
                call.tool_name, call.command, call.arguments
            )
            facts = does | facts & ~(_CHECKED_LAST | _TESTED_LAST)
            if last & _SHOWING:
                facts |= _CHECKED_LAST | _TESTED_LAST if last & CHECKS else _CHECKED_LAST
            if names_read and not written.isdisjoint(names_read):
                facts |= _BACK
            if names_written:
                written |= names_written
            if runs:
                if not ran.isdisjoint(runs):
                    facts |= _AGAIN
                ran |= runs
        # Forgetting everything at once is crude, but only traces made to fill memory get here.
        if len(ran) > _MOST_REMEMBERED or len(written) > _MOST_REMEMBERED:
            ran.clear()
            written.clear()
        return facts


type _Decision = tuple[str, str, int]
"""A label, the cue, and the number of cues beyond the required one; -1: no cue at all."""


def _make_label(step: int, label: str, cue: str, extra: int) -> Label:
    return Label(step, label, cue, _SURENESS[min(extra, _MOST_EXTRA)])


_PLAINLY: Final = 2
"""How many further cues an action that speaks for itself is worth."""
_PLAIN: Final[dict[int, _Decision]] = {
    _LAST: (EXECUTION, "closing words", _PLAINLY),
    WAITS: (EXECUTION, "waits", _PLAINLY),
    WAITS | LOOKS: (EXECUTION, "waits", _PLAINLY),
    ENDS: (EXECUTION, "hands in", _PLAINLY),
}


def _decide(text: str, facts: int) -> _Decision:
    # Actions take precedence over words, which take longer to analyse.
    plain = _decide_by_action(facts)
    if plain is not None:
        return plain
    length = _ARGUMENT if len(text) >= _ARGUMENT else _THOUGHT if len(text) >= _THOUGHT else 0
    return _decide_by_words(facts, count_cues(text) if text else NO_CUES, length)


# Few combinations of facts and cues occur, so each is decided once.
@lru_cache(maxsize=1 << 12)
def _decide_by_words(facts: int, cues: Cues, length: int) -> _Decision:
    """The label of a turn by its words and their length."""
    if not facts & _DOES:
        # The label of a turn without actions.
        judged = cues[LOOKS_BACK] + 2 * cues[FINDS_FAULT]
        if facts & _ACTED and judged >= 3:
            return VERIFICATION, "judges its work", judged - 3
        undecided = cues[WEIGHS] + cues[GUESSES] + cues[ASKS]
        if cues[ASKS] or (undecided >= 2 and undecided > cues[REASONS]):
            return EXPLORATION, "weighs or guesses", max(undecided - 2, 0)
        if length >= _THOUGHT or cues[REASONS] >= 2 or facts & THINKS:
            return DELIBERATION, "reasons", max(cues[REASONS] - 2, 0)
        return EXECUTION, "nothing else applies", -1
    return (
        _find_verification(facts, cues)
        or _find_exploration(facts, cues)
        or _find_deliberation(length, cues)
        or ((EXECUTION, "writes", 1) if facts & WRITES else (EXECUTION, "runs", 0))
    )


@lru_cache(maxsize=1 << 12)
def _decide_by_action(facts: int) -> _Decision | None:
    """The label that the actions alone decide, regardless of words."""
    # The order of these rules is their meaning: docs/reference/summaries.md has the same.
    if facts & CHECKS and _has_own_work(facts):
        return VERIFICATION, "checks its work", _PLAINLY
    if facts & _ACTED and not facts & WRITES:
        if facts & PROBES:
            return VERIFICATION, "probes its service", _PLAINLY
        if facts & _BACK and not facts & WAITS:
            cue = "tries what it wrote" if facts & RUNS else "reads back what it wrote"
            return VERIFICATION, cue, _PLAINLY
        if facts & _CHANGED and facts & _AGAIN:
            return VERIFICATION, "reruns after a change", _PLAINLY
    return _PLAIN.get(facts & _DOES or facts & _LAST)


def _has_own_work(facts: int) -> bool:
    """Whether what is checked was changed before, by an earlier turn or earlier in this one."""
    is_in_turn = bool(facts & WRITES and facts & _TESTED_LAST)
    return bool(facts & _CHECKED_LAST) if facts & _CHANGED else is_in_turn


def _find_verification(facts: int, cues: Cues) -> _Decision | None:
    if not facts & _ACTED:
        # Before anything was produced there is nothing to verify.
        return None
    if facts & WRITES:
        cue, extra = "names its mistake", cues[FINDS_FAULT] - 2
    else:
        needed = 2 if facts & RUNS else 3
        cue, extra = "judges its work", cues[LOOKS_BACK] + 2 * cues[FINDS_FAULT] - needed
    return (VERIFICATION, cue, extra) if extra >= 0 and not facts & ENDS else None


def _find_exploration(facts: int, cues: Cues) -> _Decision | None:
    if facts & (WRITES | ENDS):
        return None
    undecided = cues[WEIGHS] + cues[GUESSES] + cues[ASKS]
    if facts & CHECKS and facts & _CHECKED_LAST and not facts & _CHANGED:
        return EXPLORATION, "sees the failure first", undecided
    if undecided >= 2:
        return EXPLORATION, "weighs or guesses", undecided - 2
    if not facts & RUNS:
        return EXPLORATION, "looks at what is there", cues[LOOKS_AROUND] + undecided
    if cues[LOOKS_AROUND] and not facts & _ACTED:
        return EXPLORATION, "looks around first", cues[LOOKS_AROUND] - 1
    return None


def _find_deliberation(length: int, cues: Cues) -> _Decision | None:
    if length >= _ARGUMENT and cues[REASONS] >= 2:
        return DELIBERATION, "argues, then acts", cues[REASONS] - 2
    return None
