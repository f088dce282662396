"""Renders blocks as HTML, and self-contained pages without scripts and other files.

All text is escaped by the template engine. The security policy of a page forbids loading anything,
and allows its own style by hash.
"""

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from proctor.digest import sha256_hex
from proctor.report.page.blocks import Block, Document, Facts, Heading, Lines, Paragraph, Table
from proctor.report.page.svg import render_svg
from proctor.sentence import printable


@dataclass(frozen=True, slots=True)
class Links:
    """URLs of the pages of trials; None if there is no page."""

    trial: Callable[[str], str | None] = lambda _name: None
    """By EXPERIMENT/TRIAL."""
    pair: Callable[[str, str], str | None] = lambda _one, _other: None
    """The comparison of two trials."""

    def find(self, trials: tuple[str, ...]) -> str | None:
        """The URL for a cell about these trials."""
        if len(trials) == 2:
            return self.pair(*trials)
        return self.trial(trials[0]) if trials else None


NO_LINKS: Final = Links()


def _one_line(text: str) -> str:
    return printable(text.replace("\n", " "))


def _many_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _coded(text: str) -> Markup:
    """A sentence with the text between backticks as code."""
    pieces = _one_line(text).split("`")
    if len(pieces) % 2 == 0:
        return escape(_one_line(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if at % 2 else escape(piece)
        for at, piece in enumerate(pieces)
    )


def _kind(block: Block) -> str:
    match block:
        case Heading() | Paragraph() | Facts() | Table() | Lines():
            return type(block).__name__
        case _:
            return "Plot"


_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {"line": _one_line, "lines": _many_lines, "kind": _kind, "coded": _coded}


def render_blocks(blocks: Iterable[Block], links: Links = NO_LINKS) -> Markup:
    """Render blocks as a part of a page."""
    numbered = list(enumerate(blocks, 1))

    def draw(number: int) -> Markup:
        # All text in a picture was escaped when it was drawn.
        return Markup(render_svg(numbered[number - 1][1], number))  # type: ignore[arg-type] # noqa: S704

    template = _ENVIRONMENT.get_template("blocks.html")
    return Markup(template.render(blocks=numbered, links=links, draw=draw))  # noqa: S704


def make_policy(*styles: str) -> Markup:
    """The security policy of a page that loads nothing and has only these styles."""
    digests = (bytes.fromhex(sha256_hex(style.encode())) for style in styles)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return Markup(  # noqa: S704 - it is ours
        f"default-src 'none'; style-src {hashes}; base-uri 'none'; form-action 'none'"
    )


def render_page(document: Document, style: str, links: Links = NO_LINKS) -> str:
    """Render a self-contained page with the given style sheet."""
    return _ENVIRONMENT.get_template("document.html").render(
        title=document.title,
        body=render_blocks(document.blocks, links),
        style=Markup(style),  # noqa: S704 - it is ours
        policy=make_policy(style),
    )
