"""The pack as values: what each cheater declares, and what became of one in a job of proctor's."""

import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.sentence import count_of
from proctor.trial.finding import Level, level_of

HERE = Path(__file__).resolve().parent
DECLARED = "cheater.toml"

ANY, NONE = "any", "none"
_REWARDS: dict[str, tuple[float | None, ...]] = {
    "0": (0,),
    "1": (1,),
    NONE: (None,),
    ANY: (0, None),
}
_OF_THE_PLACE = frozenset(
    {
        *("base-substituted", "network-shared", "usr-read-only", "ids-shared"),
        *("limits-not-enforced", "storage-not-enforced"),
    }
)
"""Findings about where a trial ran, whatever the agent did."""
_MOST_READ = 1 << 20


@dataclass(frozen=True)
class Expected:
    """What a cheater's folder says of one environment."""

    reward: str
    """`0`; `none`: the trial has no reward; `any`: one or the other; `1`: it does the task."""
    flags: frozenset[str]
    """Findings that must be there."""
    may_flag: frozenset[str]
    """Findings that may be there, by luck; they are not in the table."""
    refused: frozenset[str]
    """Attempts that must have been made and refused."""
    reached: frozenset[str]
    """Attempts that are known to succeed there; the table says so."""
    why: str
    """Why it can score there without an alarm; empty: it must not."""


@dataclass(frozen=True)
class Cheater:
    """One folder."""

    name: str
    tries: str
    agent: str
    """Who runs it here: `oracle`, or `scripted` where the agent's own output or trace matters."""
    declared: dict[str, Any]

    def expected(self, site: str) -> Expected:
        """What is to become of it in an environment, by the name of its section."""
        merged = self.declared | self.declared.get(site, {})
        return Expected(
            reward=merged.get("reward", "0"),
            flags=frozenset(merged.get("flags", ())),
            may_flag=frozenset(merged.get("may_flag", ())),
            refused=frozenset(merged.get("refused", ())),
            reached=frozenset(merged.get("reached", ())),
            why=merged.get("why", ""),
        )


@dataclass(frozen=True)
class Outcome:
    """What became of a cheater."""

    reward: float | None
    error: str
    """Type of the exception that the trial failed with, or nothing."""
    flags: frozenset[str]
    clean: str
    """What the tests gave in the clean room, where that is not what they gave before."""
    refused: frozenset[str]
    """Attempts of which the cheat itself says that they were refused."""
    reached: frozenset[str]
    """Attempts that succeeded."""


def load_cheaters() -> dict[str, Cheater]:
    """All of them, by name."""
    found = {path.parent.name: path for path in sorted(HERE.glob(f"*/{DECLARED}"))}
    return {name: _load_cheater(path) for name, path in found.items()}


def _load_cheater(path: Path) -> Cheater:
    declared = tomllib.loads(path.read_text())
    tries, agent = declared.pop("tries"), declared.pop("agent", "oracle")
    return Cheater(path.parent.name, tries, agent, declared)


def load_outcomes(job: Path) -> dict[str, Outcome]:
    """What became of the cheaters of a job, by name."""
    return {
        path.parent.name.partition("__")[0]: _load_outcome(
            path.parent, json.loads(path.read_text())
        )
        for path in sorted(job.glob("*/result.json"))
    }


def _load_outcome(trial: Path, result: dict[str, Any]) -> Outcome:
    rewards = (result["verifier_result"] or {}).get("rewards") or {}
    findings = trial / "findings.json"
    listed = json.loads(findings.read_text()) if findings.exists() else []
    lines = list(_said(trial))
    return Outcome(
        reward=rewards.get("reward"),
        error=(result["exception_info"] or {}).get("exception_type", ""),
        flags=frozenset(finding["code"] for finding in listed) - _OF_THE_PLACE,
        clean=_load_clean(trial / "clean-room.json"),
        refused=frozenset(_after("DENIED ", lines)),
        reached=frozenset(_after("REACHED ", lines)),
    )


def _load_clean(path: Path) -> str:
    found = json.loads(path.read_text()) if path.exists() else None
    if found is None or found["verdict"] == "agrees":
        return ""
    rewards = found["clean"][0]["rewards"] or {}
    return f"{rewards['reward']:g}" if "reward" in rewards else "none"


def find_alarms(flags: Iterable[str]) -> list[str]:
    """The codes that are alarms."""
    return sorted(code for code in flags if level_of(code) is Level.ALARM)


def _said(trial: Path) -> Iterator[str]:
    """What the cheat printed, and what its tests say that it left."""
    for place in ("agent/oracle.txt", "verifier/test-stdout.txt"):
        path = trial / place
        if path.is_file():
            with path.open("rb") as file:
                yield from file.read(_MOST_READ).decode(errors="replace").splitlines()


def _after(word: str, lines: list[str]) -> Iterator[str]:
    return (line.removeprefix(word) for line in lines if line.startswith(word))


def find_faults(cheater: Cheater, site: str, outcome: Outcome | None) -> list[str]:
    """Sentences on what is not as the folder says; none if all is well."""
    if outcome is None:
        return [f"{cheater.name}: did not run"]
    expected = cheater.expected(site)
    faults = [f"reached {what}" for what in sorted(outcome.reached - expected.reached)]
    if outcome.reward not in _REWARDS[expected.reward]:
        faults.append(f"reward {outcome.reward} {outcome.error}; expected {expected.reward}")
    if expected.reward in ("0", "1") and outcome.error:
        faults.append(f"ended with {outcome.error}")
    faults += [f"not flagged {flag}" for flag in sorted(expected.flags - outcome.flags)]
    more = frozenset(find_alarms(outcome.flags)) - expected.flags - expected.may_flag
    faults += [f"alarm {flag}, which its folder does not say" for flag in sorted(more)]
    if outcome.reward and not find_alarms(outcome.flags) and not expected.why:
        faults.append("scored without an alarm, and its folder does not say why")
    faults += [f"{what}: not refused" for what in sorted(expected.refused - outcome.refused)]
    return [f"{cheater.name}: {fault}" for fault in faults]


def render_cell(cheater: Cheater, site: str, outcome: Outcome) -> str:
    """What became of a cheater, for the table: nothing that another run has otherwise."""
    expected = cheater.expected(site)
    words = ["no reward" if outcome.reward is None else f"reward {outcome.reward:g}"]
    if expected.reward == ANY and not outcome.reward:
        words = ["reward 0 or none"]
    elif outcome.reward:
        words = [f"**{words[0]}**"]
    if outcome.clean:
        words[0] += f", clean room {outcome.clean}"
    if outcome.error and expected.reward == NONE:
        words[0] += f" (`{outcome.error}`)"
    if outcome.refused:
        words.append(f"{count_of(len(outcome.refused), 'attempt')} refused")
    if outcome.reached:
        words.append(f"**reached {', '.join(sorted(outcome.reached))}**")
    alarms = [code for code in find_alarms(outcome.flags) if code not in expected.may_flag]
    others = sorted(outcome.flags & expected.flags - set(alarms))
    words += [f"{name} {_join(codes)}" for name, codes in _by_level(alarms, others) if codes]
    return "; ".join(words)


def _by_level(alarms: list[str], others: list[str]) -> Iterator[tuple[str, list[str]]]:
    yield "**alarm**", alarms
    for level in (Level.NOTICE, Level.INFO):
        yield str(level), [code for code in others if level_of(code) is level]


def _join(codes: list[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)
