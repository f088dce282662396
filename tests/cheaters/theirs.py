"""The pack under harbor 0.13.1 itself: those cheaters that are no danger to a machine.

Harbor runs them in an environment of namespaces that keeps no agent from the host: it is for tasks
of this suite. Cheaters that reach for the host are not run in it.
"""

import json
from pathlib import Path

from tests.cheaters.pack import HERE, Cheater, load_cheaters
from tests.parity.beside import run_theirs
from tests.parity.theirs import Harbor

TITLE = "harbor 0.13.1"
NOT_RUN = "not run"
RACE = "race"
"""In a folder: harbor gives it a reward or none, as luck has it."""


def run_harbor(harbor: Harbor, place: Path) -> dict[str, str]:
    """What harbor gives each cheater, as cells of the table."""
    cheaters = load_cheaters()
    names = [name for name, cheater in cheaters.items() if is_for_harbor(cheater)]
    chosen = [word for name in names for word in ("-i", name)]
    run_theirs(harbor, "-p", HERE, *chosen, "-a", "oracle", "-n", 2, jobs=place)
    found = {path.parent.name.partition("__")[0]: path for path in place.glob("job/*/result.json")}
    cells = {name: _render(json.loads(found[name].read_text())) for name in names}
    cells |= {name: "**reward 1** or none" for name in names if _is_race(cheaters[name])}
    return dict.fromkeys(cheaters, NOT_RUN) | cells


def is_for_harbor(cheater: Cheater) -> bool:
    """Whether its folder says that it is no danger to a machine."""
    return bool(cheater.declared.get("harbor"))


def _is_race(cheater: Cheater) -> bool:
    return cheater.declared.get("harbor") == RACE


def _render(result: dict[str, dict[str, dict[str, float]] | None]) -> str:
    rewards = (result["verifier_result"] or {}).get("rewards") or {}
    reward = rewards.get("reward")
    if reward is None:
        return "no reward"
    return f"**reward {reward:g}**" if reward else "reward 0"
