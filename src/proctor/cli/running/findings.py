"""The integrity findings of a job's trials, by kind and level."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from proctor.files import read_small
from proctor.trial.finding import Finding, Level, level_of, sort_codes

UNREADABLE = "unreadable"
"""Stands in place of a kind where a trial's findings cannot be read."""

_decode = msgspec.json.Decoder(list[Finding]).decode


def find_findings(directory: Path, trials: Iterable[str]) -> Mapping[str, list[str]]:
    """The trials that have findings, by kind of finding: alarms first, else in the order met."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        for kind in _find_kinds(f"{directory}/{trial}/findings.json"):
            found.setdefault(kind, []).append(trial)
    return {kind: found[kind] for kind in sort_codes(found)}


def count_alarmed(findings: Mapping[str, list[str]]) -> int:
    """How many trials have an alarm."""
    alarms = (trials for kind, trials in findings.items() if level_of(kind) is Level.ALARM)
    return len({trial for trials in alarms for trial in trials})


def _find_kinds(path: str) -> list[str]:
    if not os.path.lexists(path):
        return []
    try:
        return list(dict.fromkeys(str(finding.code) for finding in _decode(read_small(path))))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [UNREADABLE]
