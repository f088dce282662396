"""The integrity findings of a job's trials, by kind. It judges none of them."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from proctor.files import read_small
from proctor.trial.finding import Finding

UNREADABLE = "unreadable"
"""Stands in place of a kind where a trial's findings cannot be read."""

_decode = msgspec.json.Decoder(list[Finding]).decode


def find_findings(directory: Path, trials: Iterable[str]) -> Mapping[str, list[str]]:
    """The trials that have findings, by kind of finding; both in the order they are met."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        for kind in _find_kinds(f"{directory}/{trial}/findings.json"):
            found.setdefault(kind, []).append(trial)
    return found


def _find_kinds(path: str) -> list[str]:
    if not os.path.lexists(path):
        return []
    try:
        return list(dict.fromkeys(str(finding.code) for finding in _decode(read_small(path))))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [UNREADABLE]
