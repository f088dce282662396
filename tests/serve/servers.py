"""A real `proctor serve` in a process of its own, and machines that use it."""

import contextlib
import datetime
import ipaddress
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proctor.ledger.entry import TrialEntry
from proctor.ledger.keys import SigningKey, find_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.remote.mirror import Mirror, connect, open_mirror
from proctor.ledger.sealing import Sealed, Submission, seal
from proctor.serve.tokens import Tokens, serve_directory
from tests.ledger.ledgers import ORIGIN, record_bytes

EXPERIMENT = "experiment-001"


def home_variables(home: Path) -> dict[str, str]:
    """The variables of a user with this home."""
    return {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local/state"),
    }


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "certificate.pem", directory / "certificate.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


@dataclass(slots=True)
class Machine:
    """A machine with a home of its own."""

    home: Path
    url: str
    token: str | None
    certificate: Path | None = None
    may_write: bool = True
    more: dict[str, str] = field(default_factory=dict)
    """Variables of its own."""

    @property
    def env(self) -> dict[str, str]:
        """Its variables."""
        found = {**home_variables(self.home), **self.more}
        if self.token:
            found["PROCTOR_TOKEN"] = self.token
        if self.certificate:
            found["SSL_CERT_FILE"] = str(self.certificate)
        return found

    @property
    def key(self) -> SigningKey:
        """Its key, made when it is first asked for."""
        return find_key(None, self.env)

    def fetch(self) -> Path:
        """The copy of the ledger, up to date."""
        with self.using():
            return open_mirror(self.url, self.env, lambda _: None)

    @contextlib.contextmanager
    def using(self) -> Iterator[None]:
        """Have its variables, as a command on it would."""
        before = dict(os.environ)
        os.environ.update(self.env)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    @contextlib.contextmanager
    def opened(self, *, is_fetched: bool = True) -> Iterator[OpenLedger]:
        """The copy, open for writing."""
        with self.using():
            if is_fetched:
                directory = open_mirror(self.url, self.env, lambda _: None)
            else:
                directory = next((self.home / ".local/state/proctor/ledgers").iterdir())
            with OpenLedger.open(directory, key=self.key if self.may_write else None) as ledger:
                ledger.refresh()
                yield ledger

    @contextlib.contextmanager
    def opened_for_reading(self) -> Iterator[OpenLedger]:
        """The copy, as commands that only look at it open it."""
        with self.using(), OpenLedger.open(self.fetch()) as ledger:
            ledger.refresh()
            yield ledger

    def mirror(self) -> Mirror:
        """The connection of its copy."""
        with self.using():
            return connect(self.fetch(), self.env)

    def seal(
        self, *trials: str, evidence: Path | None = None, is_fetched: bool = True
    ) -> list[Sealed]:
        """Seal trials, each with a file of evidence if there is any."""
        with self.opened(is_fetched=is_fetched) as ledger:
            return seal(ledger, [submission_of(trial, evidence) for trial in trials])

    def proctor(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command on it, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "proctor", *map(str, words)],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=check,
            timeout=120,
        )


def submission_of(trial: str, evidence: Path | None = None) -> Submission:
    """A trial to be sealed."""
    if evidence is None:
        return Submission(record=record_bytes(trial), where=trial)
    names = sorted(path.name for path in evidence.iterdir())
    return Submission(record=record_bytes(trial), where=trial, root=evidence, evidence=tuple(names))


def trial(name: str, /, **changes: object) -> TrialEntry:
    """An entry as a client would submit it."""
    record = msgspec.json.format(record_bytes(name, **changes), indent=-1)
    return TrialEntry(at="", seq=0, record=msgspec.Raw(record))


@dataclass(slots=True)
class ServedLedger:
    """A ledger and the process that serves it."""

    top: Path
    words: Sequence[object] = ()
    is_encrypted: bool = True
    port: int = 0
    process: subprocess.Popen[str] | None = None
    url: str = ""
    _n_machines: int = 0
    _files: tuple[Path, Path] | None = field(default=None)

    @property
    def home(self) -> Path:
        """The home of the server's owner."""
        return self.top / "owner"

    @property
    def directory(self) -> Path:
        """The ledger."""
        return self.top / "ledger"

    @property
    def env(self) -> dict[str, str]:
        """The variables of the owner."""
        return home_variables(self.home)

    @property
    def key(self) -> SigningKey:
        """The ledger's key."""
        return find_key(None, self.env)

    def create(self) -> None:
        """Make the ledger."""
        self.home.mkdir()
        OpenLedger.create(self.directory, self.key, ORIGIN).close()

    def start(self) -> None:
        """Serve it."""
        words: list[object] = ["serve", "--ledger", self.directory, "--port", self.port, "--json"]
        if self.is_encrypted:
            self._files = self._files or make_certificate(self.top)
            words += ["--tls-certificate", self._files[0], "--tls-key", self._files[1]]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "proctor", *map(str, [*words, *self.words])],
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        text = ""
        while line := self.process.stdout.readline():
            text += line
            with contextlib.suppress(msgspec.DecodeError):
                self.url = msgspec.json.decode(text)["address"]
                break
        if not self.url:
            self.stop()
        assert self.url, "the server did not start"
        self.port = int(self.url.rpartition(":")[2])

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> None:
        """End the server."""
        if self.process is not None:
            self.process.send_signal(sign)
            self.process.wait(timeout=30)
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None

    def token(self, name: str, *, may_write: bool = True, experiments: tuple[str, ...] = ()) -> str:
        """A new token."""
        tokens = Tokens(serve_directory(ORIGIN, self.env))
        return tokens.add(name, may_write=may_write, experiments=experiments)

    def machine(
        self, *, may_write: bool = True, experiments: tuple[str, ...] = (), has_token: bool = True
    ) -> Machine:
        """A new machine with a token of its own."""
        self._n_machines += 1
        name = f"node-{self._n_machines}"
        home = self.top / name
        home.mkdir()
        token = None
        if has_token:
            token = self.token(name, may_write=may_write, experiments=experiments)
        certificate = self._files[0] if self._files else None
        return Machine(home, self.url, token, certificate, may_write)

    def trials(self) -> list[str]:
        """The sealed trials, by name, in order."""
        with OpenLedger.open(self.directory) as ledger:
            return [row.trial_id for row in list_trials(ledger)]


@contextlib.contextmanager
def serving(top: Path, *words: object, is_encrypted: bool = True) -> Iterator[ServedLedger]:
    """A new ledger that is served."""
    served = ServedLedger(top, words, is_encrypted)
    served.create()
    served.start()
    try:
        yield served
    finally:
        served.stop()


def wait_until(is_so: Callable[[], object]) -> None:
    """Wait for something that happens soon."""
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)
