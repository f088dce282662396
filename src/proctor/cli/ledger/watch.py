"""`proctor ledger watch`: follows ledgers, and reports suspicious changes."""

import json
import signal
import threading
from pathlib import Path

import click

from proctor.cli.ledger.options import open_memory, state_option
from proctor.cli.options import PATH, check_apart
from proctor.cli.output import print_line
from proctor.cli.stdout import print_stderr, send
from proctor.errors import InputError
from proctor.ledger.claims.trust import load_verifier_key
from proctor.ledger.entry import now_text
from proctor.ledger.place import local_directory
from proctor.ledger.watch.event import Event
from proctor.ledger.watch.watching import Monitor
from proctor.sentence import printable


@click.command("watch")
@click.argument("ledgers", metavar="LEDGER...", nargs=-1, required=True, type=PATH)
@click.option(
    "--once", is_flag=True, help="Check once and exit with a code for the result, for cron."
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two checks.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PUB",
    help="Require that this public key signed the ledgers. Takes the key itself, as `proctor ledger"
    " key` prints it, or a file; can be repeated.",
)
@state_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(
    ledgers: tuple[str, ...],
    once: bool,
    interval: float,
    keys: tuple[str, ...],
    state: str | None,
    as_json: bool,
) -> int:
    """Watch ledgers and report forks, rollbacks, duplicates, withholdings and damage.

    Also reports supersessions of trials that have a reward, and key changes. Everything is reported
    once, across restarts: what was seen of each ledger is remembered. Ledgers are only read, and
    only new entries are decoded. The first check starts at the first entry.

    Exit code with --once: 0 nothing new, 1 something to report, 2 a ledger cannot be watched.
    Without --once, a ledger that cannot be watched from the start ends the program with 2, and
    Ctrl-C ends it with 0 or 1. A ledger that becomes unreadable later is reported, and watched
    again when it is readable.

    Example: proctor ledger watch --once /srv/ledgers/* || mail -s ledgers me@example.org
    """
    check_apart("once", "interval")
    monitor = Monitor(open_memory(state), [load_verifier_key(key) for key in keys])
    paths = [local_directory(ledger, {}) for ledger in ledgers]
    stopped = threading.Event() if once else _stop_on_interrupt()
    was_quiet, refused = _check_all(monitor, paths, as_json=as_json)
    if refused:
        raise InputError("\nproctor: ".join(refused))
    reported = set[str]()
    while not once and not stopped.wait(interval):
        is_quiet, refused = _check_all(monitor, paths, as_json=as_json)
        for sentence in refused:
            if sentence not in reported:
                print_stderr(f"proctor: {printable(sentence)}")
        reported, was_quiet = set(refused), was_quiet and is_quiet
    return 0 if was_quiet else 1


def _stop_on_interrupt() -> threading.Event:
    """Let the first Ctrl-C end the program after the present check, and a second one at once."""
    stopped = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        stopped.set()
        # The second Ctrl-C must interrupt a check that hangs, such as on a network file system.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, stop)
    return stopped


def _check_all(monitor: Monitor, ledgers: list[Path], *, as_json: bool) -> tuple[bool, list[str]]:
    """Check all ledgers; returns whether nothing was found, and why some were not watched."""
    is_quiet, refused = True, []
    for ledger in ledgers:
        try:
            events, cursor = monitor.look(ledger)
            for event in events:
                _print(event, as_json=as_json)
                is_quiet = is_quiet and not event.kind.is_alarm
            # Stored only after reporting: unreported events are found again by the next check.
            monitor.cursors.keep(cursor)
        except InputError as error:
            refused.append(str(error))
    return is_quiet, refused


def _print(event: Event, *, as_json: bool) -> None:
    if as_json:
        facts = {
            "at": now_text(),
            "ledger": event.ledger,
            "origin": event.origin,
            "kind": str(event.kind),
            "is_alarm": event.kind.is_alarm,
            "seq": event.seq,
            "message": event.message,
            "evidence": list(event.evidence),
        }
        send(json.dumps(facts))
        return
    place = "" if event.seq is None else f" entry {event.seq}:"
    print_line(f"{event.ledger}: {event.kind}:{place} {event.message}")
    for path in event.evidence:
        print_line(f"  kept: {path}")
