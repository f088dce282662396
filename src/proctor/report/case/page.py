"""Renders the page around a case's data, and parses pages.

A page is self-contained: it embeds its style and script, and its security policy allows no other
script. The same data gives the same bytes, so that a page can be compared with what this version of
proctor writes.
"""

import base64
import html
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from proctor.digest import sha256_digest, sha256_hex
from proctor.errors import ProofFileError
from proctor.report.case.document import FORMAT, render_data
from proctor.report.case.facts import Section, list_facts
from proctor.report.case.opened import OpenedCase
from proctor.report.case.spelled import on_one_line

MARK: Final = f'<meta name="generator" content="{FORMAT}">'.encode()
"""Identifies a case file; among its first bytes."""
_HERE: Final = Path(__file__).parent
_SCRIPTS: Final = (
    "bytes", "json", "ed25519", "proofs", "rewards", "trace", "facts", "checks", "view", "page",
)  # fmt: skip
_DATA: Final = b'<script type="application/json" id="case-data">'
_SCRIPT: Final = b"<script>"
_END: Final = b"</script>"
_STYLE_MARK: Final = "the style's SHA-256"
_LONGEST_NAME: Final = 400
NOTICE: Final = (
    "Nothing below has been verified; it is what the file's author wrote. A script in this file "
    "verifies it and replaces this sentence with the result; if you can read this, no script ran. "
    "`proctor check` verifies it without a browser."
)


@cache
def load_style() -> str:
    """The style of the page."""
    return (_HERE / "case.css").read_text(encoding="utf-8")


@cache
def load_script() -> str:
    """The script of the page."""
    parts = [(_HERE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    return "".join(parts).replace(_STYLE_MARK, sha256_hex(load_style().encode()))


def script_digest() -> str:
    """SHA-256 of the script that this version writes, in hex."""
    return sha256_hex(load_script().encode())


def render_page(opened: OpenedCase) -> bytes:
    """Render the page of a case."""
    script, style = load_script(), load_style()
    # The hashes allow exactly this script and this style; everything else is blocked, including the
    # network.
    policy = (
        f"default-src 'none'; script-src '{_source(script)}'; style-src '{_source(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    name = on_one_line(opened.name, _LONGEST_NAME)
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        MARK.decode(),
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy, quote=True)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{html.escape(name)} · proctor case file</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        '<main id="case">',
        f"<h1>{html.escape(name)}</h1>",
        f'<p class="notice">{html.escape(NOTICE)}</p>',
        *map(_render_section, list_facts(opened)),
        "</main>",
        f"{_DATA.decode()}{render_data(opened.case)}{_END.decode()}",
        f"{_SCRIPT.decode()}{script}{_END.decode()}",
        "</body>",
        "</html>",
    ]
    return ("\n".join(parts) + "\n").encode()


def _source(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256_digest(text.encode())).decode()}"


def _render_section(section: Section) -> str:
    title, facts = section
    pairs = [
        f"<dt>{html.escape(label)}</dt><dd>{html.escape(value)}</dd>" for label, value in facts
    ]
    lines = ["<section>", f"<h2>{html.escape(title)}</h2>", '<dl class="facts">', *pairs]
    return "\n".join([*lines, "</dl>", "</section>"])


@dataclass(frozen=True, slots=True)
class FoundPage:
    """The embedded parts of a page."""

    data: str
    script: str


def parse_page(page: bytes, where: str) -> FoundPage:
    """Extract the data and the script of a case file, without parsing them.

    Raises:
        ProofFileError: it is incomplete, or has more than one of either.
    """
    data = _between(page, _DATA, where, "the data")
    script = _between(page, _SCRIPT, where, "the script")
    try:
        return FoundPage(data.decode("utf-8"), script.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ProofFileError(f"{where}: not UTF-8: {error}") from error


def _between(page: bytes, start: bytes, where: str, what: str) -> bytes:
    before, found, rest = page.partition(start)
    inside, ended, after = rest.partition(_END)
    if not found or not ended:
        raise ProofFileError(f"{where}: incomplete: {what} of the case file has no begin or no end")
    if start in before or start in after:
        raise ProofFileError(f"{where}: {what} of the case file is in it twice")
    return inside


def differs_from(page: bytes, wanted: bytes) -> str:
    """Describe the first difference between two pages."""
    found, expected = page.splitlines(), wanted.splitlines()
    for number, (one, other) in enumerate(zip(found, expected, strict=False), 1):
        if one != other:
            return f"line {number:,} is {_cut(one)}; expected {_cut(other)}"
    return f"it has {len(found):,} lines; expected {len(expected):,}"


def _cut(line: bytes) -> str:
    return repr(on_one_line(line[:400].decode("utf-8", "replace"), 100))
