"""Serves a ledger until interrupted."""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import InputError
from proctor.files import try_lock
from proctor.ledger.keys import find_key
from proctor.ledger.place import open_reader
from proctor.record.model import TrialRecord
from proctor.serve.app import Front, Served
from proctor.serve.audit import AuditLog
from proctor.serve.tokens import Tokens, serve_directory
from proctor.serve.uploads import Uploads
from proctor.serve.writer import Writer
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from proctor.web.server import Tls, listen, serve

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


@dataclass(slots=True)
class LedgerServer:
    """A server that listens; `run` answers."""

    address: str
    served: Served
    _listening: socket.socket
    _tls: Tls | None
    _held: contextlib.ExitStack

    def run(self) -> None:
        """Answer until interrupted."""
        viewer = make_app(DataSource(ledger=self.served.directory), hosts=None)
        try:
            serve(viewer, self._listening, front=Front(self.served, viewer), tls=self._tls)
        finally:
            self.served.writer.close()
            self.served.audit.close(time.monotonic())
            self._held.close()


def prepare(options: ServeOptions, env: Mapping[str, str]) -> LedgerServer:
    """Open the ledger and listen.

    Raises:
        InputError: the address cannot be used, or would not be encrypted, or another process
            serves this ledger.
        LedgerError: there is no ledger.
        KeyFileError: the key is not the ledger's.
    """
    if options.tls is None and options.host not in LOOPBACK:
        raise InputError(
            f"--host {options.host}: tokens would cross the network unencrypted; give "
            "--tls-certificate and --tls-key, or serve on 127.0.0.1"
        )
    directory = options.directory.resolve()
    with contextlib.ExitStack() as held, open_reader(directory) as ledger:
        origin = ledger.refresh().origin
        state = serve_directory(origin, env)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Two servers would remove each other's uploads.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        held.callback(os.close, fd := os.open(state / "serving.lock", flags, 0o600))
        if not try_lock(fd):
            raise InputError(f"{directory}: served already by another process on this machine")
        uploads = Uploads(directory, state, options.largest)
        uploads.begin(ledger, time.time())
        audit = AuditLog(state / "requests.jsonl")
        listening = listen(options.port, options.host)
        key = find_key(options.key_file, env)
        # pydantic builds it on first use: the first submission need not wait for that.
        TrialRecord.model_rebuild()
        served = Served(
            directory=directory,
            origin=origin,
            tokens=Tokens(state),
            writer=Writer(directory, key, uploads.unreferenced.removed),
            uploads=uploads,
            audit=audit,
            is_public=options.is_public,
        )
        scheme = "http" if options.tls is None else "https"
        host = f"[{options.host}]" if ":" in options.host else options.host
        address = f"{scheme}://{host}:{listening.getsockname()[1]}"
        return LedgerServer(address, served, listening, options.tls, held.pop_all())
