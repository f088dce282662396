"""What documents are made of. Nothing here knows what it is about."""

from dataclasses import dataclass
from typing import Literal

type Tone = Literal["", "good", "bad", "warn", "soft"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table."""

    text: str
    tone: Tone = ""
    trials: tuple[str, ...] = ()
    """EXPERIMENT/TRIAL that it is about: one, or two to be seen side by side."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    is_number: bool = False
    is_dear: bool = False
    """Cut last where a terminal is narrow."""
    is_extra: bool = False
    """Left out where a terminal is narrow."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of what follows."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or more; with a tone of warn or bad it stands out."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with what is known of each."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    """What it shows, for those who do not see it."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that stay as they are, such as commands or a log."""

    lines: tuple[str, ...]
    summary: str = ""
    """What it is folded away under; "" where it is shown at once."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A value and how far it may be off."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Intervals:
    """A plot: values as dots with their intervals."""

    title: str
    rows: tuple[Spread, ...]
    mark: float | None = None
    """Where a line is drawn across, such as no difference."""
    least: float = 0.0
    most: float = 1.0


@dataclass(frozen=True, slots=True)
class Bars:
    """A plot: signed bars, one for each label."""

    title: str
    rows: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A plot: how often values fall where."""

    title: str
    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Dot:
    """A named place of a scatter plot."""

    label: str
    x: float
    y: float
    is_best: bool = False
    """Whether none is better both ways."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """A plot: two numbers of several things."""

    title: str
    x: str
    y: str
    dots: tuple[Dot, ...]


type Plot = Intervals | Bars | Histogram | Scatter
type Block = Heading | Paragraph | Facts | Table | Lines | Plot


@dataclass(frozen=True, slots=True)
class Document:
    """A whole one."""

    title: str
    blocks: tuple[Block, ...]
