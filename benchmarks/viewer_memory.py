"""What the viewer of a large ledger holds in memory, when all its pages have been looked at.

Every route that is read, with names of the ledger in it; the pages of many experiments, each in
both of its shapes; then many of them at once. The figure is the most its process ever held.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from starlette.routing import Route

from benchmarks.bench import Bench, BenchmarkError
from benchmarks.ledger import load_ledger
from benchmarks.row import Row, share_of
from benchmarks.viewers import Viewer, our_viewer
from proctor.web.app import ROUTES

_MEGABYTES = 200
_NAMES = {
    "experiment": "experiment-000",
    "trial": "trial-0000000",
    "dataset": "bench@1",
    "seq": "1",
    "path": "record.json",
}
_EXPERIMENTS = 30
_AT_ONCE = 20


def view_memory_rows(bench: Bench, *, records: int = 100_000) -> Iterator[Row]:
    """The memory, with its bar."""
    with our_viewer(load_ledger(bench, records, 1000)) as viewer:
        browse(viewer)
        held = viewer.peak_megabytes()
    bar = f"{_MEGABYTES} MB"
    yield share_of("view-memory", (held, _MEGABYTES), bar, at_most=1, unit="MB")


def browse(viewer: Viewer) -> None:
    """Look at everything."""
    paths = ["/", "/?page=2", "/?q=model-3"]
    for number in range(_EXPERIMENTS):
        path = f"/experiments/experiment-{number:03}"
        paths += [path, f"{path}?view=trials&sort=low", f"{path}?outcome=full"]
    for path in paths:
        viewer.ask(path)
    for path in find_paths():
        try:
            viewer.ask(path)
        except BenchmarkError:
            # A trial of this ledger has no files, and a page may need more than a path.
            continue
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(viewer.ask, paths))


def find_paths() -> list[str]:
    """An address for each route that is read and comes to an end."""
    return [
        re.sub(r"{(\w+)(?::\w+)?}", lambda found: _NAMES.get(found[1], "x"), route.path)
        for route in ROUTES
        if isinstance(route, Route)
        and "GET" in (route.methods or ())
        and not route.path.endswith("/events")
    ]
