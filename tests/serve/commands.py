"""Commands on machines of the tests, in this process: most of a child's time is its start."""

from proctor.ledger.place import _fetch
from tests.cli.programs import Ran, run_captured
from tests.serve.servers import Machine, ServedLedger


def at(machine: Machine, *words: object) -> Ran:
    """A command on a machine, to its end."""
    # A process fetches a ledger once; the next command would be another process.
    _fetch.cache_clear()
    with machine.using():
        return run_captured(*words)


def owner_of(served: ServedLedger) -> Machine:
    """The server's own machine, with the key of the ledger."""
    return Machine(served.home, served.url, None)
