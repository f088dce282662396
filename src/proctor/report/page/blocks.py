"""The blocks of a document."""

from dataclasses import dataclass
from typing import Literal

type Tone = Literal["", "good", "bad", "warn", "soft", "verdict"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table."""

    text: str
    tone: Tone = ""
    trials: tuple[str, ...] = ()
    """EXPERIMENT/TRIAL that it links to: one trial, or two to compare."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    is_number: bool = False
    is_dear: bool = False
    """Whether it is cut last on a narrow terminal."""
    is_extra: bool = False
    """Whether it is left out on a narrow terminal."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One or more sentences; the tones warn, bad and verdict make it stand out."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with values."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    """A description for screen readers."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Preformatted lines, such as commands or a log."""

    lines: tuple[str, ...]
    summary: str = ""
    """The summary under which it is collapsed; "" if it is not collapsed."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A value with its interval."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Intervals:
    """A plot of values with their intervals."""

    title: str
    rows: tuple[Spread, ...]
    mark: float | None = None
    """Where a line is drawn across, such as at no difference."""
    least: float = 0.0
    most: float = 1.0


@dataclass(frozen=True, slots=True)
class Bars:
    """A plot of signed bars, one for each label."""

    title: str
    rows: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram."""

    title: str
    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Dot:
    """A named point of a scatter plot."""

    label: str
    x: float
    y: float
    is_best: bool = False
    """Whether no other point is better in both dimensions."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """A scatter plot."""

    title: str
    x: str
    y: str
    dots: tuple[Dot, ...]


type Plot = Intervals | Bars | Histogram | Scatter
type Block = Heading | Paragraph | Facts | Table | Lines | Plot


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document."""

    title: str
    blocks: tuple[Block, ...]
