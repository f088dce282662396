"""Random cases for the differential fuzz, chosen for where implementations part."""

import json
from collections.abc import Callable
from random import Random

from tests.conformance.files import encode_parts
from tests.conformance.ours import Case
from tests.conformance.values import Encoded, encode_value


def _words(text: str) -> list[str]:
    return text.split()


_NUMBER_TEXTS = _words("""
    0 1 -0 -1 +1 00 007 5. .5 0.1 0.2 0.3 1e5 1E-5 1e-05 1e16 123456789.123456789 5e-324 2e-324
    1e400 -1e400 1e-400 1.7976931348623157e308 1.7976931348623159e308 9007199254740993
    9223372036854775807 9223372036854775808 -9223372036854775809 1_0 1__0 _1 1_ 1_0.0_1 1e1_0
    nan NaN -nan +nan inf -inf INF Infinity -Infinity infinit infinity_ 0x10 0b1 1j 1d 1,0 1/2
    true True \u0661 \u0663.\u0665 \u0967 \uff11 \U0001d7d9 \xbd \xb2 \u2167 \u22121 \u066b5
    1e+ e5 . -
""")
_NUMBER_TEXTS += ["9" * 400, "0." + "3" * 900, "1" * 4300, "1" * 4301]

_BLANKS = [" ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1f", "\x85", "\xa0", "\u2003"]
_BLANKS += ["\u2028", "\u200b", "\ufeff", "\0", "", "", ""]

_BAD_BYTES = [b"\xff", b"\xfe\xff", b"\xc2", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80"]

_JSON_VALUES = _words("""
    null true false NaN Infinity -Infinity nan inf [] {} [1] {"a":1} "" "x" "0.5" "\xa01\xa0"
    "1_0" "1__0" "nan" "inf" "-Infinity" "\uff11" "0x10" "1e400" ".5" "5." "+1" "true" "1e5"
    "\\u0031" "\\ud800" '1' -0 0 1 1.0 0.0 -0.0 1e0 01 1. .1 +1 1e 0.1 1e999 -1e999 1E+2 1e-7
    123456789012345678901234567890 undefined [null] [[1],{"b":[]}]
""")
_JSON_VALUES += ['" 1 "', '"1\t"', "[1, 2]"]

_JSON_KEYS = [
    '"reward"',
    '"reward"',
    '"a"',
    '"b"',
    '""',
    '"é"',
    '"\\u00e9"',
    '"\\ud800"',
    '"\\n"',
    "a",
]


def generate_reward_files(random: Random) -> Case:
    makers = {"reward.json": _json_pieces, "reward.txt": _text_pieces}
    files = {
        name: _file_content(random, pieces)
        for name, pieces in makers.items()
        if random.random() < 0.6
    }
    return {"files": files}


def _file_content(random: Random, make_pieces: Callable[[Random], list[str]]) -> Case:
    if random.random() < 0.02:
        targets = ["/dev/null", "nowhere", "reward.txt", "reward.json"]
        return random.choice([{"dir": True}, {"symlink": random.choice(targets)}])
    pieces = [piece.encode() for piece in make_pieces(random)]
    if random.random() < 0.3:
        _damage(random, pieces)
    return encode_parts(pieces)


def _damage(random: Random, pieces: list[bytes]) -> None:
    """Cut, double, reorder or dirty a file, as writers that crash do."""
    at = random.randrange(len(pieces) + 1)
    match random.randrange(6):
        case 0:
            del pieces[at:]
        case 1:
            pieces.insert(at, random.choice(_BAD_BYTES))
        case 2:
            pieces.insert(0, b"\xef\xbb\xbf")
        case 3:
            pieces.extend(list(pieces))
        case 4:
            pieces.insert(at, random.choice(_BLANKS).encode())
        case 5 if pieces:
            at = random.randrange(len(pieces))
            pieces[at] = pieces[at][: random.randrange(len(pieces[at]) + 1)]


def _text_pieces(random: Random) -> list[str]:
    blanks = [random.choice(_BLANKS), random.choice(_BLANKS)]
    match random.randrange(3):
        case 0:
            middle = [repr(_finite(random))]
        case 1:
            middle = [random.choice(_NUMBER_TEXTS)]
        case _:
            middle = [random.choice(_NUMBER_TEXTS)[:4] for _ in range(random.randint(1, 3))]
    return [blanks[0], *middle, blanks[1]]


def _json_pieces(random: Random) -> list[str]:
    if random.random() < 0.1:
        return [random.choice(_JSON_VALUES)]
    pieces = ["{"]
    for number in range(random.randint(0, 4)):
        separator = "," if number else random.choice(_BLANKS[:5])
        pieces += [separator, random.choice(_JSON_KEYS[:-1]), ":", _json_value(random)]
    if random.random() < 0.05:
        pieces += [",", random.choice(_JSON_KEYS), random.choice([":", "=", ""])]
    return [*pieces, "}", random.choice(["", "", "\n", " ", "\r\n", "//"])]


def _json_value(random: Random) -> str:
    match random.randrange(6):
        case 0:
            return random.choice(_JSON_VALUES)
        case 1:
            return json.dumps(random.choice(_NUMBER_TEXTS), ensure_ascii=random.random() < 0.5)
        case 2:
            return str(_whole(random))
        case _:
            return repr(_finite(random))


def _finite(random: Random) -> float:
    return random.choice(
        [
            random.random(),
            random.randint(0, 1) * 1.0,
            random.randint(-30, 30) / 10,
            random.uniform(-1, 1) * 10.0 ** random.randint(-320, 307),
            random.choice([1e16, -1e16, 9007199254740993.0, 1e-5, 9.999e-6, 1e308, 5e-324, -0.0]),
        ]
    )


def _whole(random: Random) -> int:
    edge = random.choice([0, 1, 2**53, 2**63 - 1, 2**63, 2**64, 10**30])
    return random.choice([0, 1, random.randint(-9, 9), edge, -edge, edge + random.randint(-2, 2)])


def _odd(random: Random) -> float | int:
    return random.choice([float("nan"), float("inf"), float("-inf"), 10**309, -(10**309), 10**400])


type Numbers = Callable[[Random], float | int]

NUMBERS: list[Numbers] = [
    lambda random: random.randint(0, 1),
    lambda random: random.randint(0, 10) / 10,
    lambda random: random.choice([0, 1, 0.0, 1.0, -0.0, 0.5]),
    lambda random: random.choice([_finite, _whole])(random),
    lambda random: random.choice([_finite, _finite, _whole, _odd])(random),
]

_KEYS = ["reward", "a", "b", "", "é", "B"]


def _rewards(random: Random, number: Numbers, keys: list[str]) -> Encoded:
    if random.random() < 0.1:
        return random.choice([None, encode_value({})])
    chosen = random.sample(keys, random.randint(1, len(keys)))
    return encode_value({key: number(random) for key in chosen})


def generate_metric(random: Random) -> Case:
    number = random.choice(NUMBERS)
    keys = random.choice([["reward"], ["reward"], random.sample(_KEYS, 3)])
    return {
        "metric": random.choice(["mean", "max", "min", "sum"]),
        "rewards": [_rewards(random, number, keys) for _ in range(random.randint(0, 12))],
    }


def generate_pass_at_k(random: Random) -> Case:
    kind = random.random()
    if kind < 0.1:
        return {"kind": "eligible", "min_trials": random.randint(0, 200)}
    if kind < 0.3:
        attempts = random.randint(1, 60)
        successes = random.randint(0, attempts)
        return {"kind": "task", "n": attempts, "c": successes, "k": random.randint(1, attempts)}
    return {"kind": "group", "trials": _trials(random)}


def _trials(random: Random) -> list[Case]:
    """Attempts at some tasks, in any order, by one agent at one data set or by several."""
    mixed = random.random() < 0.4
    tasks = [f"task-{number}" for number in range(random.randint(1, 9))]
    attempts = random.randint(1, 11)
    names = [task for task in tasks for _ in range(attempts + random.randint(0, 1))]
    random.shuffle(names)
    odds = random.choice([0, 0.01, 0.05])
    return [
        {
            "trial_name": f"{name}__{number}",
            "task_name": name,
            "agent": random.choice(["ag", "a__b"]) if mixed else "ag",
            "model": random.choice([None, "m", "", "b"]) if mixed else None,
            "source": random.choice(["ds", None, "", "adhoc"]) if mixed else "ds",
            "verifier_result": _attempt(random, odds),
        }
        for number, name in enumerate(names)
    ]


def _attempt(random: Random, odds: float) -> Case | None:
    if random.random() < odds:
        odd = [{}, {"reward": 0.5}, {"a": 1, "b": 0}, {"r": float("nan")}, {"r": 2}, {"r": True}]
        rewards = random.choice([*odd, {"r": 5e-324}, {"r": "1"}, {"r": -1}])
        return {"rewards": encode_value(rewards)}
    if random.random() < 0.1:
        return random.choice([None, {"rewards": None}])
    key = random.choice(["reward", "reward", "x"])
    return {"rewards": encode_value({key: random.choice([0, 1, 1.0, 0.0, -0.0])})}


def generate_steps(random: Random) -> Case:
    number = random.choice(NUMBERS[:4])
    keys = random.choice([["reward"], ["reward", "a"], ["a", "b", "c"]])
    return {
        "strategy": random.choice([None, "mean", "final"]),
        "verification_disabled": random.random() < 0.1,
        "steps": [_step(random, f"s{at}", number, keys) for at in range(random.randint(0, 6))],
    }


def _step(random: Random, name: str, number: Numbers, keys: list[str]) -> Case:
    verified = random.random() < 0.85
    thresholds: list[object] = [0.0, 0.5, 1, 1.0, float("nan"), float("-inf"), {}, number(random)]
    thresholds += [{key: random.choice([0, 0.5])} for key in keys] + [{"a": 0.1, "reward": 0.2}]
    return {
        "name": name,
        "verifier_result": {"rewards": _rewards(random, number, keys)} if verified else None,
        "exception": random.choice(["RuntimeError", "TimeoutError"])
        if random.random() < 0.1
        else None,
        "min_reward": encode_value(random.choice(thresholds)) if random.random() < 0.25 else None,
    }
