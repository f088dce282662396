"""Serves a ledger until interrupted."""

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import InputError
from proctor.ledger.keys import find_key
from proctor.ledger.ledger import REMOTE
from proctor.ledger.place import open_reader
from proctor.record.model import TrialRecord
from proctor.serve.app import AuditLog, Front, Served
from proctor.serve.tokens import Tokens, serve_directory
from proctor.serve.uploads import Uploads
from proctor.serve.witnesses import Witness, Witnesses
from proctor.serve.writer import Writer
from proctor.web.app import make_app
from proctor.web.server import Tls, listen, serve
from proctor.web.subject import Subject

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What is served, and where."""

    directory: Path
    host: str
    port: int
    tls: Tls | None = None
    key_file: Path | None = None
    is_public: bool = False
    largest: int = 8 << 30
    """Bytes of an artifact, at most."""
    witnesses: Sequence[Witness] = ()


@dataclass(slots=True)
class LedgerServer:
    """A server that listens; `run` answers."""

    address: str
    served: Served
    _listening: socket.socket
    _witnesses: Witnesses
    _tls: Tls | None

    def run(self) -> None:
        """Answer until interrupted."""
        viewer = make_app(Subject(ledger=self.served.directory), hosts=None)
        self._witnesses.start()
        try:
            serve(viewer, self._listening, front=Front(self.served, viewer), tls=self._tls)
        finally:
            self.served.writer.close()
            self._witnesses.close()


def prepare(options: ServeOptions, env: Mapping[str, str]) -> LedgerServer:
    """Open the ledger and listen.

    Raises:
        InputError: the address cannot be used, or would not be encrypted.
        LedgerError: there is no ledger.
        KeyFileError: the key is not the ledger's.
    """
    if options.tls is None and options.host not in LOOPBACK:
        raise InputError(
            f"--host {options.host}: tokens would cross the network unencrypted; give "
            "--tls-certificate and --tls-key, or serve on 127.0.0.1"
        )
    if os.path.lexists(options.directory / REMOTE):
        raise InputError(f"{options.directory}: a copy of another server's ledger; serve that one")
    directory = options.directory.resolve()
    with open_reader(directory) as ledger:
        origin = ledger.refresh().origin
    state = serve_directory(origin, env)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    listening = listen(options.port, options.host)
    witnesses = Witnesses(directory, options.witnesses)
    key = find_key(options.key_file, env)
    uploads = Uploads(directory, state, options.largest)
    uploads.remove_old(time.time())
    # pydantic builds it on first use: the first submission need not wait for that.
    TrialRecord.model_rebuild()
    served = Served(
        directory=directory,
        origin=origin,
        tokens=Tokens(state),
        writer=Writer(directory, key, witnesses.grown),
        uploads=uploads,
        audit=AuditLog(state / "requests.jsonl"),
        is_public=options.is_public,
    )
    scheme = "http" if options.tls is None else "https"
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{scheme}://{host}:{listening.getsockname()[1]}"
    return LedgerServer(address, served, listening, witnesses, options.tls)
