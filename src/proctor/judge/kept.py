"""Labels that a judge has given, kept by content: `judge/ab/abcdef….json` in the cache.

The name is the SHA-256 of the prompt's version, the model's name, and the turn with the turns
before it as they are shown. The same question therefore has the same name on every machine and in
every run, and what was answered before a kill is not asked again. A file that is not what it should
be counts as none.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import InputError
from proctor.files import read_small, write_atomic
from proctor.inspection.classification.labels import Label
from proctor.judge.prompt import PROMPT_VERSION, SYSTEM, render_question
from proctor.judge.turns import ShownTurn
from proctor.sentence import reason_of

_MOST_BYTES: Final = 1 << 20


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The request that brought a label, and what its whole answer took."""

    id: str
    """Its own: labels of one answer share it."""
    model: str | None = None
    """The model as the endpoint names it."""
    tokens_in: int | None = None
    """Null: the endpoint did not say."""
    tokens_out: int | None = None
    amount_usd: float | None = None
    """Null: not known, which is not 0."""


class KeptLabel(msgspec.Struct, frozen=True, kw_only=True):
    """One label as it is kept."""

    prompt_version: str
    model: str
    """The model as it was asked for."""
    label: Literal["execution", "verification", "deliberation", "exploration"]
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reason: str
    """The judge's own words."""
    asked: Asked


def name_question(model: str, turn: ShownTurn, context: Sequence[ShownTurn]) -> str:
    """The name under which the label of a turn is kept."""
    # SYSTEM too, so that a word that was changed without a new version is never answered wrongly.
    whole = [PROMPT_VERSION, SYSTEM, model, render_question([turn], context)]
    return sha256_hex("\0".join(whole).encode())


class Keep:
    """The labels that are kept in one place."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._decoder = msgspec.json.Decoder(KeptLabel)

    def find(self, name: str) -> KeptLabel | None:
        """The label of that name, if it is there and whole."""
        try:
            return self._decoder.decode(read_small(str(self._path(name)), _MOST_BYTES))
        except (OSError, msgspec.MsgspecError, InputError, UnicodeDecodeError, RecursionError):
            return None

    def write(self, name: str, kept: KeptLabel) -> None:
        """Keep a label; it is there after a kill.

        Raises:
            InputError: the place cannot be written to.
        """
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, msgspec.json.encode(kept))
        except OSError as error:
            raise InputError(
                f"{path}: cannot be written: {reason_of(error)}; PROCTOR_CACHE names another place"
            ) from error

    def _path(self, name: str) -> Path:
        return self._place / "judge" / name[:2] / f"{name}.json"


def label_of(kept: KeptLabel, step: int) -> Label:
    """A kept label as the label of a step."""
    return Label(step, kept.label, kept.reason, kept.confidence)
