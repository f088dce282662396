"""Render templates into responses, and the headers of every response."""

from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from proctor.report.page.figures import render_ends, render_percent_ends
from proctor.report.symbols import tone_of_level
from proctor.sentence import render_size
from proctor.trial.finding import level_of, sort_codes
from proctor.web.data_source import DataSource
from proctor.web.format import (
    board_path,
    entry_path,
    experiment_path,
    show_count,
    show_figure,
    show_percent,
    show_seconds,
    show_time,
    show_usd,
    trial_path,
)

TEMPLATES: Final = Path(__file__).parent / "templates"
STATIC: Final = Path(__file__).parent / "static"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Security headers: no external resources, and no framing by other sites."""

ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    # A misspelt name in a template is an error and not an empty string.
    undefined=StrictUndefined,
    # A running viewer keeps its templates when proctor is upgraded.
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
)

SOURCE: ContextVar[DataSource | None] = ContextVar("source", default=None)
"""Data of the current request: pages show its damage, and link only to what exists."""


HERE: ContextVar[str] = ContextVar("here", default="")
"""The path of the current request, highlighted in the navigation."""


def _mark_current(page: str) -> Markup:
    """The aria attribute of a navigation link: whether the current page is below it."""
    groups = {"/": ("", "experiments", "trials"), "/compare": ("compare", "diff")}
    group = HERE.get().split("/")[1:2]
    is_current = any(group == [each] for each in groups.get(page, (page[1:],)))
    return Markup(' aria-current="true"') if is_current else Markup("")


def _find_damage() -> str | None:
    source = SOURCE.get()
    return source.damage() if source is not None else None


def _has_ledger() -> bool:
    source = SOURCE.get()
    return source is not None and source.ledger is not None


def _link(address: str | None, text: object) -> Markup:
    """A link; plain text without an address, as in an exported page."""
    return Markup('<a href="{}">{}</a>').format(address, text) if address else escape(text)


def _link_style(name: str) -> Markup:
    return Markup('<link rel="stylesheet" href="/static/{}">').format(name)


ENVIRONMENT.filters.update(
    whole=show_count,
    figure=show_figure,
    seconds=show_seconds,
    size=render_size,
    usd=show_usd,
    percent=show_percent,
    percents=render_percent_ends,
    interval=render_ends,
    moment=show_time,
    level=level_of,
    by_level=sort_codes,
    tone=tone_of_level,
)
ENVIRONMENT.globals.update(
    board_path=board_path,
    experiment_path=experiment_path,
    trial_path=trial_path,
    entry_path=entry_path,
    link=_link,
    style=_link_style,
    site=None,
    current=_mark_current,
    damage=_find_damage,
    has_ledger=_has_ledger,
)


def render_text(template: str, **values: Any) -> str:
    """Render a page; every value is escaped, and overrides a global function of the same name."""
    return ENVIRONMENT.get_template(template).render(**values)


def render_page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page as a response."""
    # A file name need not be valid Unicode: undecodable bytes are escaped.
    return HTMLResponse(render_text(template, **values).encode("utf-8", "backslashreplace"), status)


_STATIC: Final = Path(__file__).parent / "static"


def load_style(name: str = "style.css") -> str:
    """Load a style sheet; by default the one that all pages share."""
    return (_STATIC / name).read_text(encoding="utf-8")
