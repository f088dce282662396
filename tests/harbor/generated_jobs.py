"""Random jobs for the differential fuzz: what real ones count twice, lose, merge or round."""

from random import Random

from tests.conformance.generators import NUMBERS, Numbers
from tests.conformance.ours import Case
from tests.conformance.values import Encoded, encode_value

AGENTS = ["ag", "ag", "ag", "a__b", "ag__m", "b", "é_"]
MODELS = [None, None, "m", "m", "", "m__ds", "q/r", "_", "m_"]
SOURCES = ["ds", "ds", "ds", None, "", "adhoc", "my__ds", "_ds", "ds__", "m__ds"]
DATASETS = ["ds", "adhoc", "my__ds", "_ds", "", "m"]
EXCEPTIONS = ["CancelledError", "RuntimeError", "AgentTimeoutError", "", "é", "ValidationError"]
METRICS = ["mean", "max", "min", "sum"]

ODD_REWARDS: list[Encoded] = [
    None,
    encode_value({}),
    encode_value({"reward": True}),
    encode_value({"reward": "0.5"}),
    encode_value({"reward": " 1 ", "b": False}),
    encode_value({"reward": float("nan")}),
    encode_value({"reward": float("nan"), "b": 1}),
    encode_value({"reward": float("inf")}),
    encode_value({"\ud800": 1, '\n"': 0}),
    encode_value({"reward": 1e-5, "tiny": 1e-7, "large": 1e16}),
]


def generate_job(random: Random) -> Case:
    match random.randrange(4):
        case 0:
            return generate_operations(random)
        case 1:
            return {**_assembled(random, "live"), "n_running_trials": random.randint(0, 5)}
    return _assembled(random, "final_assembly")


def _assembled(random: Random, kind: str) -> Case:
    # A running job computes its metrics at every trial's end, and dies of the first that overflows.
    numbers = NUMBERS[:4] if kind == "live" else NUMBERS
    trials = generate_trials(random, random.choice([0, 1, 2, 5, 12, 30]), numbers)
    return {
        "kind": kind,
        "trials": trials,
        "metrics_by_dataset": generate_metrics(random),
        "n_total_trials": max(len(trials) + random.randint(-1, 4), 0),
    }


def generate_metrics(random: Random) -> dict[str, list[str]]:
    return {
        dataset: random.choices(METRICS, k=random.choice([1, 1, 1, 2, 4]))
        for dataset in DATASETS
        if random.random() < 0.8
    }


def generate_trials(random: Random, count: int, numbers: list[Numbers]) -> list[Case]:
    number = random.choice(numbers)
    keys = random.choice([["reward"], ["reward"], ["reward", "a"], ["b", "a", "é"]])
    # Few groups in most jobs, or no group would be large.
    groups = [
        (random.choice(AGENTS), random.choice(MODELS), random.choice(SOURCES))
        for _ in range(random.choice([1, 1, 2, 6]))
    ]
    return [_trial(random, at, number, keys, random.choice(groups)) for at in range(count)]


def _trial(
    random: Random,
    at: int,
    number: Numbers,
    keys: list[str],
    group: tuple[str, str | None, str | None],
) -> Case:
    agent, model, source = group
    task = random.choice(["t1", "t1", "t2", "t3"])
    case: Case = {
        "trial_name": f"{task}__{at:07}",
        "task_name": task,
        "agent": agent,
        "model": model,
        "source": source,
        "verifier_result": _verifier_result(random, number, keys),
        "shared_nan": random.random() < 0.5,
    }
    if random.random() < 0.2:
        case["exception"] = random.choice(EXCEPTIONS)
    if random.random() < 0.5:
        case["agent_result"] = _usage(random)
    if random.random() < 0.2:
        steps = range(random.randint(0, 3))
        case["step_results"] = [random.choice([None, _usage(random)]) for _ in steps]
    return case


def _verifier_result(random: Random, number: Numbers, keys: list[str]) -> Encoded:
    chance = random.random()
    if chance < 0.1:
        return None
    if chance < 0.15:
        return {"rewards": random.choice(ODD_REWARDS)}
    chosen = random.sample(keys, random.randint(1, len(keys)))
    return {"rewards": encode_value({key: number(random) for key in chosen})}


def _usage(random: Random) -> Case:
    tokens = [None, None, 0, 7, random.randint(0, 10**6), 2**63]
    costs = [None, 0.0, 0.1, 0.2, 1e-7, random.random(), random.random() * 1e3]
    return {
        "n_input_tokens": random.choice(tokens),
        "n_cache_tokens": random.choice(tokens),
        "n_output_tokens": random.choice(tokens),
        "cost_usd": random.choice(costs),
    }


def generate_operations(random: Random) -> Case:
    """Trials that end, are taken away and run again, also ones that were never counted."""
    trials = generate_trials(random, random.randint(1, 8), NUMBERS)
    again = [{**trial, "exception": "RuntimeError"} for trial in trials]
    operations: list[Case] = []
    for _ in range(random.randint(0, 20)):
        trial = random.choice(trials)
        match random.randrange(6):
            case 0 | 1 | 2:
                operations.append({"op": "increment", "trial": trial})
            case 3:
                operations.append({"op": "remove", "trial": random.choice([trial, *again])})
            case 4:
                previous = random.choice([None, random.choice(trials)])
                operations.append({"op": "update", "new": trial, "previous": previous})
            case 5:
                operations.append({"op": "progress", "args": _progress(random)})
    return {"kind": "ops", "operations": operations}


def _progress(random: Random) -> Case:
    counts = {"n_total_trials": random.randint(0, 12)}
    for name in ("n_running_trials", "n_cancelled_trials", "n_retries"):
        if random.random() < 0.5:
            counts[name] = random.randint(0, 4)
    return counts


ENDINGS = ["ok"] * 12 + ["agent-timeout", "nonzero-exit", "verifier-timeout"]
RARE_ENDINGS = ["cancelled", "disabled", "custom"]

REWARD_TEXTS = ["1", "0", "1.0", " 0.5\n", "nan", "inf", "-inf", "", "one", "1e-7", "0.1", "1_0"]
REWARD_JSONS = [
    '{"reward":1}',
    '{"reward":1.0}',
    '{"reward":0}',
    '{"a":1,"b":0.5}',
    '{"b":0.1,"a":0.2}',
    '{"reward":true}',
    '{"reward":"0.5"}',
    '{"reward":NaN}',
    '{"reward":Infinity}',
    "null",
    "{}",
    "[]",
    '{"reward":null}',
    "{",
    '{"\\ud800":1}',
    '{"é":0.1,"reward":-0.0}',
    '{"reward":100000000000000000000}',
    '{"reward":1,"reward":0.3}',
    '{"nan":NaN,"x":NaN}',
]


def generate_directory(random: Random) -> Case:
    """A job that lies on disk, with the files its verifiers left."""
    count = random.choice([1, 3, 6, 12])
    slots = [
        (random.choice(["t1", "t2", "t__3"]), random.choice(["ag", "a__b"]), model, source)
        for model in random.sample([None, "p/m", "q/m", "p/"], random.choice([1, 2]))
        for source in random.sample(["ds", None, "my__ds"], random.choice([1, 2]))
    ]
    trials = [_trial_on_disk(random, at, random.choice(slots)) for at in range(count)]
    for trial, ended in zip(trials, random.sample(range(count), count), strict=True):
        # A time on the full second is written without a fraction.
        trial["ended"] = ended / 2
    return {
        "job_name": "job",
        "metrics": random.sample(METRICS, random.choice([0, 1, 2])),
        "n_running_trials": random.choice([None, None, 0, 2]),
        "trials": trials,
    }


def _trial_on_disk(random: Random, at: int, slot: tuple[str, str, str | None, str | None]) -> Case:
    task, agent, model, source = slot
    steps = None
    if random.random() < 0.3:
        steps = [_step_on_disk(random, number) for number in range(random.randint(1, 3))]
    ending = random.choice(ENDINGS if random.random() < 0.9 else RARE_ENDINGS)
    if steps is not None and ending == "custom":
        ending = "ok"
    return {
        "trial_name": f"{task}__{random.randrange(10**6):06}{at:02}",
        "task_name": task,
        "agent": agent,
        "model": model,
        "source": source,
        "ending": ending,
        "files": _files(random),
        "agent_result": _usage(random) if random.random() < 0.5 else None,
        "steps": steps,
        "strategy": random.choice(["mean", "final"]),
    }


def _step_on_disk(random: Random, number: int) -> Case:
    return {
        "name": random.choice([f"s{number}", f"step {number}", f"é/{number}", f"..{number}"]),
        "ending": random.choice(["ok", "ok", "ok", "agent-timeout", "verifier-timeout"]),
        "files": _finite_files(random),
        "agent_result": _usage(random) if random.random() < 0.5 else None,
    }


def _files(random: Random) -> dict[str, str]:
    files = {}
    if random.random() < 0.6:
        files["reward.txt"] = random.choice(REWARD_TEXTS)
    if random.random() < 0.5:
        files["reward.json"] = random.choice(REWARD_JSONS)
    return files


def _finite_files(random: Random) -> dict[str, str]:
    """Without nan and inf: both are null in a claim, which then does not tell mean from final."""
    while True:
        files = _files(random)
        if not any(odd in text.lower() for text in files.values() for odd in ("nan", "inf")):
            return files
