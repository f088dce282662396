"""What a case gives: the golden files it should have, by their paths, as text.

    json/NAME.out    exit code and standard output with --json
    text/NAME.out    exit code, standard output and standard error without it
    files/NAME/…     what the command wrote, and a list of all of it with digests
    pages/NAME.out   status code and the numbers on a page, in order
    words/NAME.out   the whole visible text of a page

json, files and pages are facts. text and words are for people, and change on purpose.
"""

import asyncio
import base64
import hashlib
import io
import json
import re
import shlex
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import httpx
from backports import zstd

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.lazy_imports import LazyModule
from tests.pinned.cases import Case, PageCase
from tests.pinned.workspace import Output, Workspace

PARQUET = LazyModule("pyarrow.parquet")

FACTS = ("json", "files", "pages")
LARGEST = 24_000
"""Characters of a golden file; of a longer text the beginning and the digest are kept."""
_KEPT = 6_000
_VOLATILE = ("checkpoint", "runner.lock")
"""A signed root, which covers the times of entries, and a process id."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ZSTD = b"\x28\xb5\x2f\xfd"
_DATA = re.compile(rb'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)
_NUMBER = re.compile(r"[^\s()\[\],;]*\d[^\s()\[\],;]*")


def observe_facts(case: Case, workspace: Workspace) -> dict[str, str]:
    """What the command says with `--json`, and the files it writes."""
    run = _Run(case, workspace, "json")
    options = ["--json"] if case.has_json else []
    output = run.run(options)
    name = f"json/{case.name}.out"
    return {name: abridge(f"exit {output.code}\n{output.out}"), **run.find_written()}


def observe_words(case: Case, workspace: Workspace) -> dict[str, str]:
    """What the command prints for people."""
    output = _Run(case, workspace, "text").run([])
    text = f"exit {output.code}\n{output.out}"
    if output.err:
        text += f"--- standard error\n{output.err}"
    return {f"text/{case.name}.out": abridge(text)}


def observe_page(case: PageCase, workspace: Workspace) -> dict[str, str]:
    """The numbers on a page and its visible text."""
    with workspace.entered():
        response = asyncio.run(_fetch(case))
    text = workspace.normalise(visible_text(response.text))
    numbers = "\n".join(_NUMBER.findall(text))
    return {
        f"pages/{case.name}.out": abridge(f"status {response.status_code}\n{numbers}\n"),
        f"words/{case.name}.out": abridge(text),
    }


def abridge(text: str) -> str:
    """A text as it is kept: whole, or the beginning with the digest of all."""
    if len(text) <= LARGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[:_KEPT]}\n[… {len(text)} characters in all, sha256 {digest}]\n"


class _Run:
    """One run of a case, with directories of its own to write to."""

    def __init__(self, case: Case, workspace: Workspace, form: str) -> None:
        self.case = case
        self.workspace = workspace
        self.places = {kind: f"{kind}/{form}/{case.name}" for kind in ("out", "scratch")}
        self.out = workspace.root / self.places["out"]
        for place in self.places.values():
            shutil.rmtree(workspace.root / place, ignore_errors=True)
            (workspace.root / place).mkdir(parents=True)
        self.ledger = self._make_ledger()

    def _make_ledger(self) -> Path | None:
        """The ledger that the command writes to, if it writes to any."""
        ledger = f"{self.places['scratch']}/ledger"
        self.places |= {"new": ledger, "copy": ledger}
        if "{new}" in self.case.command:
            self.workspace.run(
                ["ledger", "init", "--origin", "example.org/new", "--ledger", ledger]
            )
        elif "{copy}" in self.case.command:
            shutil.copytree(self.workspace.root / "ledger", self.workspace.root / ledger)
        else:
            return None
        return self.workspace.root / ledger

    def run(self, options: list[str]) -> Output:
        """Run the command."""
        words = shlex.split(self.case.command.format_map(self.places))
        output = self.workspace.run([*words, *options])
        made = self.find_made()
        return replace(output, out=self.workspace.normalise(output.out, made))

    def find_made(self) -> list[str]:
        """Ids that are new in every run: ends of trial names, UUIDs, and roots of new ledgers."""
        ids = [path.parent.name[-7:] for path in self.out.glob("jobs/*/*__*/result.json")]
        for path in self.out.glob("jobs/**/result.json"):
            ids += _UUID.findall(path.read_text())
        for path in self.out.rglob("checkpoint"):
            ids.append(base64.b64decode(path.read_text().splitlines()[2]).hex())
        return ids

    def find_written(self) -> dict[str, str]:
        """Golden files of what was written, and a list of what is only pinned by its digest."""
        files = f"files/{self.case.name}"
        if self.ledger is not None:
            changed = _changed_lines(self.workspace.root / "ledger", self.ledger)
            return {f"{files}/entries": abridge(self.workspace.normalise(changed))}
        listed, texts, made = [], {}, self.find_made()
        for path, content in _contents(self.out):
            name = self.workspace.normalise(path, made).replace("<id>", "ID")
            text = self.workspace.normalise(content.decode("utf-8", "backslashreplace"), made)
            if _is_kept(name):
                texts[f"{files}/{name}"] = abridge(text)
            else:
                digest = hashlib.sha256(text.encode()).hexdigest()
                listed.append(f"{digest} {len(content):>8} {name}\n")
        return texts | ({f"{files}/list": "".join(listed)} if listed else {})


def _contents(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below a directory, and the members of archives; never how they are compressed."""
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        name, data = path.relative_to(directory).as_posix(), _decompress(path.read_bytes())
        if name.endswith(".tar.zst"):
            yield from _members(name, data)
        elif data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                yield from ((f"{name}/{each}", archive.read(each)) for each in archive.namelist())
        elif data.startswith(b"PAR1"):
            rows = PARQUET.read_table(path).to_pylist()
            yield name, "".join(json.dumps(row, default=str) + "\n" for row in rows).encode()
        elif name.endswith(".html"):
            # The data that a page holds; the rest is its words and script.
            yield name, b"\n".join(_DATA.findall(data))
        elif path.name not in _VOLATILE:
            yield name, data


def _members(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            content = archive.extractfile(member)
            yield f"{name}/{member.name}", _decompress(content.read()) if content else b""


def _decompress(data: bytes) -> bytes:
    """The plain bytes; versions of the library compress differently."""
    return zstd.decompress(data) if data.startswith(_ZSTD) else data


def _is_kept(name: str) -> bool:
    """Whether a file is kept whole: what bundles and exports hold is only listed."""
    return "/" not in name or name.startswith("jobs/")


def _changed_lines(before: Path, after: Path) -> str:
    def lines_of(ledger: Path) -> list[str]:
        return "".join(
            path.read_text() for path in sorted((ledger / "entries").iterdir())
        ).splitlines()

    known = set(lines_of(before))
    return "".join(f"{line.rstrip()}\n" for line in lines_of(after) if line not in known)


async def _fetch(case: PageCase) -> httpx.Response:
    jobs = tuple(sorted(Path("jobs").resolve().iterdir()))
    source = (
        DataSource(ledger=Path("ledger")) if case.subject == "ledger" else DataSource(jobs=jobs)
    )
    transport = httpx.ASGITransport(app=make_app(source))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get(case.route)


class _Visible(HTMLParser):
    """Collects the text that a reader sees."""

    HIDDEN = ("script", "style", "template")

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag in self.HIDDEN

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in self.HIDDEN

    def handle_data(self, data: str) -> None:
        words = " ".join(data.split())
        if words and not self._hidden:
            self.lines.append(words)


def visible_text(page: str) -> str:
    """The text of a page without its markup, a line for each piece."""
    visible = _Visible()
    visible.feed(page)
    return "\n".join(visible.lines) + "\n"
