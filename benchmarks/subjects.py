"""Every subject by name, in the order they are run. A new benchmark gets its line here."""

from collections.abc import Callable, Iterator

from benchmarks.assemble import assemble_rows
from benchmarks.audit import audit_rows
from benchmarks.bench import Bench
from benchmarks.changes import changes_rows, clean_room_rows
from benchmarks.cluster import cluster_rows
from benchmarks.commands import score_rows, start_up_rows
from benchmarks.docker_trials import docker_rows
from benchmarks.gateway import gateway_rows
from benchmarks.growth import large_board_rows, proof_rows, withhold_rows
from benchmarks.images import image_start_rows, pull_rows, unpack_rows
from benchmarks.inspect_import import import_rows
from benchmarks.inspect_search import search_rows
from benchmarks.inspect_show import show_rows
from benchmarks.inspect_summary import summary_rows
from benchmarks.ledger import append_rows, list_rows, verify_rows
from benchmarks.load import load_rows
from benchmarks.publishing import publish_rows
from benchmarks.row import Row
from benchmarks.runner import runner_rows, sandbox_rows
from benchmarks.sandbox_start import start_rows
from benchmarks.serving import serve_batch_rows, serve_trial_rows
from benchmarks.traces import trace_rows
from benchmarks.viewer_board import board_rows
from benchmarks.viewer_job import view_job_rows
from benchmarks.viewer_memory import view_memory_rows
from benchmarks.viewer_trace import trace_page_rows

type Subject = Callable[[Bench], Iterator[Row]]

SUBJECTS: dict[str, Subject] = {
    "start-up": start_up_rows,
    "score": score_rows,
    "assemble": assemble_rows,
    "load": load_rows,
    "audit": audit_rows,
    "traces": trace_rows,
    "run": runner_rows,
    "run-sandbox": sandbox_rows,
    "sandbox-start": start_rows,
    "changes": changes_rows,
    "clean-room": clean_room_rows,
    "append": append_rows,
    "verify": verify_rows,
    "list": list_rows,
    "import-harbor": import_rows,
    "docker": docker_rows,
    "search": search_rows,
    "show": show_rows,
    "summarise": summary_rows,
    "view-job": view_job_rows,
    "view-memory": view_memory_rows,
    "view-trace": trace_page_rows,
    "board": board_rows,
    "gateway": gateway_rows,
    "proof-growth": proof_rows,
    "withhold-growth": withhold_rows,
    "board-1m": large_board_rows,
    "serve-batch": serve_batch_rows,
    "serve-trial": serve_trial_rows,
    "ray": cluster_rows,
    "publish": publish_rows,
    "image-pull": pull_rows,
    "image-unpack": unpack_rows,
    "image-start": image_start_rows,
}
