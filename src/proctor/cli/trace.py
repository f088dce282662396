"""`proctor trace`: commands about traces, and the writer for harnesses."""

import contextlib
import importlib
import json
import os
import select
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

import click
import msgspec

from proctor.audit.file_kind import FileKind, find_file_kind
from proctor.cli.main import no_such_command
from proctor.cli.options import PATH, STDOUT, check_apart
from proctor.cli.output import json_option, print_json, print_line, write_new_file
from proctor.cli.stdout import send
from proctor.cli.trace_convert import convert
from proctor.cli.trace_diff import diff
from proctor.cli.trace_tail import LINE_LIMIT, Change, Line, Tail
from proctor.cli.trace_text import LONGEST, render_entry, render_header
from proctor.diagnostic import Diagnostic
from proctor.digest import sha256_hex
from proctor.errors import InputError, TraceError
from proctor.sentence import printable
from proctor.traces.entry import MODEL_TRACE, OUTPUT, OUTPUT_FILE
from proctor.traces.trajectory import CarefulReader, LineReading

_WRITER = "trajectory_writer.py"
_POLL_SECONDS = 0.2
_OF_TRIALS = ("trajectory.jsonl", MODEL_TRACE, OUTPUT_FILE)


# Commands in proctor.cli.trace_NAME, imported on use because they are slow to import.
_LATER = ("classify", "summary")


class _Commands(click.Group):
    """The commands about traces."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if not args[0].startswith("-") and args[0] not in names:
            raise no_such_command(ctx, args[0], get_close_matches(args[0], names))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LATER])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LATER:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"proctor.cli.trace_{cmd_name}")
        found: click.Command = getattr(module, cmd_name)
        return found


@click.group("trace", cls=_Commands)
def command() -> None:
    """Summarize, classify, compare, follow or convert traces.

    Example: proctor trace follow jobs/nightly/fix-bug__a1B2c3D
    """


command.add_command(convert)
command.add_command(diff)


@command.command("writer")
@click.option(
    "-o", "--output", type=PATH, help="Write to this file instead of stdout; never overwrite one."
)
@json_option
def writer(output: str | None, as_json: bool) -> int:
    """Print the trajectory writer, one Python file.

    It needs Python 3.8 or later and nothing else: copy it into a container, where a harness imports
    it. It writes the file that $PROCTOR_TRAJECTORY names, which proctor sets for every agent. Its
    first lines explain how to use it.

    Example: proctor trace writer > trajectory_writer.py
    """
    output = None if output == STDOUT else output
    source = resources.files("proctor.traces").joinpath("writer.py").read_bytes()
    facts: dict[str, object] = {"name": _WRITER, "sha256": sha256_hex(source), "size": len(source)}
    if output is not None:
        write_new_file(Path(output), source, [])
    if as_json:
        print_json(facts | ({"path": output} if output else {"source": source.decode()}))
    elif output is not None:
        print_line(f"{output}: written; sha256 {facts['sha256']}")
    else:
        send(source.decode().removesuffix("\n"))
    return 0


@dataclass(frozen=True, slots=True)
class _FollowOptions:
    """What to show, and when to stop."""

    lines: int | None
    """The number of existing lines to show; None: all."""
    once: bool
    idle_seconds: float | None
    """Stop after this many idle seconds; None: never."""

    def is_over(self, quiet_seconds: float) -> bool:
        return self.idle_seconds is not None and quiet_seconds >= self.idle_seconds


@command.command("follow")
@click.argument("file", type=PATH)
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of existing lines to show first.",
)
@click.option("--from-start", is_flag=True, help="Show all existing lines first.")
@click.option("--once", is_flag=True, help="Show the existing lines and exit.")
@click.option("--wait", is_flag=True, help="Wait for the file to appear.")
@click.option(
    "--until-idle",
    type=click.FloatRange(min=0, max=1e9),
    metavar="SECONDS",
    help="Exit when no line was added for this long.",
)
@click.option("--full", is_flag=True, help=f"Show whole texts, not {LONGEST:,} characters of each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
def follow(
    file: str,
    lines: int,
    from_start: bool,
    once: bool,
    wait: bool,
    until_idle: float | None,
    full: bool,
    as_json: bool,
) -> int:
    """Show a trace while it is being written.

    FILE is a trajectory, or what an agent's commands print (proctor-output.jsonl), or the directory
    of a trial that has one of them. Each entry is printed as soon as its line is complete. A line
    that is not a valid entry is shown with what is wrong with it. If the file is truncated or
    replaced, a message says so and the new lines are followed.

    Example: proctor trace follow jobs/nightly/fix-bug__a1B2c3D
    """
    check_apart("lines", "from_start")
    check_apart("until_idle", "once")
    check_apart("full", "as_json")
    file = _find_file(file, until_idle, is_waiting=wait)
    _check_kind(file)
    options = _FollowOptions(None if from_start else lines, once, until_idle)
    tail = Tail(file)
    try:
        _follow(tail, options, _Showing(_show_as_json if as_json else _shower(full=full)))
    finally:
        tail.close()
    return 0


def _check_kind(path: str) -> None:
    """Refuse other kinds of traces; an empty file may become a trajectory."""
    try:
        thing = find_file_kind(path)
    except InputError:
        return
    # A single line without a step may be invalid; the name of the file decides.
    is_spoken = thing is FileKind.CONVERSATION and "conversation" in Path(path).name
    if thing is FileKind.ATIF or is_spoken:
        raise InputError(f"{path}: a {thing}; expected a trajectory. `proctor show` shows it")


type _Show = Callable[[Line, LineReading], None]


class _Showing:
    """Shows lines; when the middle of an agent's output was cut, not again those shown before."""

    def __init__(self, show: _Show) -> None:
        self._show = show
        self._last = self._before = ""

    def __call__(self, line: Line, found: LineReading) -> None:
        entry = found.entry
        if entry is not None and entry.role == OUTPUT and entry.timestamp:
            if entry.timestamp <= self._before:
                return
            self._last = entry.timestamp
        if found.header is None or not self._before:
            self._show(line, found)

    def start_again(self) -> None:
        """Begin with the first line of the file that replaced the one shown."""
        self._before = self._last


def _follow(tail: Tail, options: _FollowOptions, show: _Showing) -> None:
    reader = CarefulReader(thorough=False)
    with _ReaderOfStdout() as audience:
        there: Iterable[Line] = tail.read()
        if options.lines is not None:
            there = deque(there, options.lines)
        _show_lines(there, reader, show)
        last = time.monotonic()
        while not options.once and not audience.has_gone():
            if _show_coming(tail, reader, show):
                last = time.monotonic()
            elif options.is_over(time.monotonic() - last):
                break
            time.sleep(_POLL_SECONDS)
    if rest := tail.read_rest():
        _show_lines([rest], reader, show)


def _show_coming(tail: Tail, reader: CarefulReader, show: _Showing) -> bool:
    """Show the new lines; returns whether there were any."""
    count = _show_lines(tail.read(), reader, show)
    change = tail.find_change()
    is_trimmed = change is Change.REPLACED and Path(tail.path).name == OUTPUT_FILE
    if change is not None and not is_trimmed:
        click.echo(f"{printable(tail.path)}: {change.value}", err=True)
    if change in (Change.CUT, Change.REPLACED):
        count += _show_lines(tail.read(), reader, show)
        tail.start_again()
        show.start_again()
    return bool(count or change)


def _show_lines(lines: Iterable[Line], reader: CarefulReader, show: _Show) -> int:
    """Show lines; returns their number."""
    count = 0
    for line in lines:
        count += 1
        if line.text is None:
            message = f"{line.length:,} bytes long; expected no more than {LINE_LIMIT:,}"
            show(line, LineReading(diagnostics=[Diagnostic("line-too-long", message, line.number)]))
        else:
            show(line, reader.read(line.text, line.number, torn=not line.ended))
    return count


def _shower(*, full: bool) -> _Show:
    """Shows entries for people; lines are wrapped only on a terminal."""
    longest = None if full else LONGEST
    is_screen = sys.stdout is not None and sys.stdout.isatty()

    def show(line: Line, found: LineReading) -> None:
        width = shutil.get_terminal_size().columns if is_screen else None
        if found.header is not None:
            send(render_header(found.header))
        if found.entry is not None:
            send("\n".join(render_entry(found.entry, width, longest=longest)))
        what = "" if found.header or found.entry else "not an entry: "
        for problem in found.diagnostics:
            print_line(f"line {line.number}: {what}{problem.message}")

    return show


def _show_as_json(line: Line, found: LineReading) -> None:
    document = {
        "line": line.number,
        "header": found.header,
        "entry": found.entry,
        "beside": found.kept.beside if found.kept else None,
        "problems": [problem.message for problem in found.diagnostics],
    }
    present = {key: value for key, value in document.items() if value}
    if len(present) == 1:
        return  # a blank line
    plain = json.dumps(msgspec.to_builtins(present))
    # A trace may contain NaN, which JSON does not allow; DEL is a control character that JSON does
    # not escape.
    whole = json.loads(plain, parse_constant=lambda _: None)
    send(json.dumps(whole).replace("\x7f", "\\u007f"))


def _find_file(thing: str, idle_seconds: float | None, *, is_waiting: bool) -> str:
    """The file to follow: of a trial, its trajectory, else what its agent's commands print."""
    began = time.monotonic()
    while True:
        place = Path(thing)
        names = [place / "agent" / name for name in _OF_TRIALS] if place.is_dir() else [place]
        found = next((name for name in names if name.exists()), None)
        if found is not None or not (is_waiting or place.is_dir()):
            return str(found or thing)
        if not is_waiting:
            raise InputError(
                f"{thing}: has no agent/{', agent/'.join(_OF_TRIALS)}; expected "
                "a trajectory or the directory of a trial. --wait waits for its agent to begin"
            )
        if idle_seconds is not None and time.monotonic() - began >= idle_seconds:
            raise TraceError(f"{thing}: did not appear within {idle_seconds:g} seconds")
        time.sleep(_POLL_SECONDS)


class _ReaderOfStdout:
    """The reader of a pipe on stdout: `follow … | head` must end when it does."""

    def __enter__(self) -> "_ReaderOfStdout":
        # A duplicate, because `send` replaces stdout when the pipe breaks.
        self._fd = None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._fd = os.dup(sys.stdout.fileno())
        return self

    def __exit__(self, *failure: object) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def has_gone(self) -> bool:
        if self._fd is None:
            return False
        poll = select.poll()
        poll.register(self._fd, 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
