"""What an export could not keep: counted for people, and written down in full.

Each line of a loss report is one field of one trial that the form has no place for, or gives back
otherwise. It is found by reading the written bytes again and comparing, never taken from a list.
Paths begin with `record`, with the name of a field of the sealed entry, or with `entries`, which
are those of the trial's trace, counted from 0.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from proctor.exporters.chosen import Exported
from proctor.trajectory.loss import Loss

NAME = "losses.jsonl"
"""The loss report in a directory; beside a file it has the file's name before it."""


class TrialLoss(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field of one trial that did not survive."""

    trial: str
    """EXPERIMENT/TRIAL."""
    path: str
    """Where it stands, as in `record.task.task_revision`."""
    value_summary: str
    """The beginning of the value, as JSON."""
    why: str
    """A sentence for a person."""
    part: str = ""
    """The step of a trial of several."""


def report_path(target: Path) -> Path:
    """Where the loss report of a single file is."""
    return target.with_name(f"{target.name}.{NAME}")


class Report:
    """What has come to be known of an export so far."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.trials = 0
        """Trials that are in it."""
        self.losses = 0
        """Fields that did not survive."""
        self.left_out: list[str] = []
        """A sentence for each trial, or part of one, that is not in it."""

    def lose(self, trial: str, losses: Iterable[Loss], part: str = "") -> None:
        """Write down what was lost of a trial."""
        for loss in losses:
            line = TrialLoss(trial, loss.path, loss.value_summary, loss.why, part)
            self._file.write(msgspec.json.encode(line) + b"\n")
            self.losses += 1

    def leave_out(self, sentence: str) -> None:
        """Write down what is not in the export at all."""
        self.left_out.append(sentence)

    def exported(self, target: Path, report: Path) -> Exported:
        """The account of it."""
        return Exported(
            output=str(target),
            trials=self.trials,
            refused=self.left_out,
            losses=self.losses,
            loss_report=str(report),
        )
