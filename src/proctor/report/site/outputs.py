"""The files of a trial that say how its score came to be: rewards, and the verifier's output."""

from collections.abc import Iterator
from typing import Final

from proctor.errors import DamageError
from proctor.files import read_head
from proctor.report.page.blocks import Block, Lines, Paragraph
from proctor.report.site.steps import cut_text
from proctor.sentence import reason_of
from proctor.traces.traced_trial import TracedTrial

_REWARDS: Final = ("reward.txt", "reward.json")
_PRINTED: Final = ("test-stdout.txt", "test-stderr.txt")
_MOST_BYTES: Final = 1 << 20
_LONGEST: Final = 40_000


def tell_rewards(trial: TracedTrial) -> Iterator[Block]:
    """What the verifier wrote down."""
    yield from _tell_files(trial, _REWARDS, is_folded=False)


def tell_printed(trial: TracedTrial) -> Iterator[Block]:
    """What the verifier printed."""
    found = list(_tell_files(trial, _PRINTED, is_folded=True))
    yield from found or [Paragraph("The verifier's output is not among what was kept.")]


def _tell_files(trial: TracedTrial, names: tuple[str, ...], *, is_folded: bool) -> Iterator[Block]:
    for file in trial.files:
        folder, _, name = file.rpartition("/")
        if name not in names or folder.rpartition("/")[2] != "verifier":
            continue
        try:
            with trial.open_file(file) as path:
                data = read_head(path, _MOST_BYTES)
        except (OSError, DamageError) as error:
            said = reason_of(error) if isinstance(error, OSError) else str(error)
            yield Paragraph(f"{file} cannot be read: {said}", "bad")
            continue
        text = data.decode("utf-8", "replace")
        if len(data) == _MOST_BYTES:
            text += "\n… the file goes on; only its first megabyte was read"
        if is_folded:
            yield Lines(tuple(cut_text(text, _LONGEST)), file)
        else:
            yield Paragraph(f"{file}:", "soft")
            yield Lines(tuple(cut_text(text)))
