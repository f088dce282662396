"""Ledgers and jobs to look at: real jobs sealed, and a trial by somebody who means harm."""

import shutil
from pathlib import Path

import msgspec

from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.ledger.entry import TrialScore
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import Submission, seal
from tests.ledger.ledgers import ORIGIN, find_key, record_bytes
from tests.trial.changed import change, changes, room, verified

JOBS = Path(__file__).resolve().parent.parent / "data" / "harbor" / "jobs"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000008000000080802000000"
    "4b6d29dc0000001149444154789c636070688083180632390d0031b00f8147d2d4120000000049454e44ae426082"
)
"""A picture of eight by eight."""
HARM = (
    '<script>window.hacked=1;alert(1)</script><img src=x onerror="window.hacked=2">"\'><svg '
    "onload=window.hacked=3></svg></pre></td></script>{{7*7}}\x1b[31m\x07\u202egnp.exe "
)
"""Text that wants to be run, or to be seen as something else."""
LONG = "A" * 30_000
"""Text that wants to be wider than any page."""


def copy_job(directory: Path, name: str) -> Path:
    """A job of one's own, to be changed."""
    return Path(shutil.copytree(JOBS / name, directory / name))


def seal_jobs(directory: Path, *names: str) -> Path:
    """Where a new ledger is, with all trials of these jobs sealed."""
    with OpenLedger.create(directory / "ledger", find_key(directory), ORIGIN) as ledger:
        for name in names:
            offers = find_trials(JOBS / name, JobOptions(dataset_id="fixtures@1")).offers
            seal(ledger, [offer.submit() for offer in offers])
        ledger.refresh()
    return directory / "ledger"


def seal_files(
    directory: Path,
    trial: str,
    files: dict[str, bytes],
    score: TrialScore | None = None,
    /,
    **changes: object,
) -> Path:
    """Seal one more trial, whose evidence is these files, into the ledger of a directory."""
    root = directory / "trials" / trial
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    with open_for_writing(directory) as ledger:
        submission = Submission(
            record=record_bytes(trial, **changes),
            where=trial,
            root=root,
            evidence=tuple(files),
            findings=_find_harm(changes),
            score=score,
        )
        seal(ledger, [submission])
        ledger.refresh()
    return directory / "ledger"


def _find_harm(changes: dict[str, object]) -> tuple[dict[str, object], ...]:
    if "inputs.instruction" not in changes:
        return ()
    return (
        {"code": HARM, "phase": HARM, "message": HARM + LONG, "detail": {HARM: [HARM, LONG]}},
        {"code": "reward-planted", "phase": "verify", "message": "one file", "detail": {}},
    )


def open_for_writing(directory: Path) -> OpenLedger:
    """The ledger of a directory; made where there is none."""
    key = find_key(directory)
    if not (directory / "ledger").exists():
        return OpenLedger.create(directory / "ledger", key, ORIGIN)
    return OpenLedger.open(directory / "ledger", key=key)


def seal_harm(directory: Path) -> Path:
    """A ledger with a trial that has harm in every field and file, called `harm`."""
    shown = HARM.replace("\x1b", "").replace("\x07", "")
    error = {"exception_type": HARM, "exception_message": HARM + LONG, "exception_traceback": HARM}
    times = {"started_at": "2026-11-15T10:00:00Z", "finished_at": "2026-11-15T10:01:00Z"}
    step = {"step_name": HARM, "agent_execution": times, "exception_info": error}
    result = {**times, "exception_info": error, "step_results": [step], "agent_setup": times}
    return seal_files(
        directory,
        "harm",
        {
            "result.json": msgspec.json.encode(result),
            "verifier/reward.txt": HARM.encode(),
            "changes.jsonl": changes(
                change(HARM + LONG, how=HARM, kind=HARM, mode=HARM, sha256=HARM, target=HARM),
                change("/etc/passwd", place="system"),
            ),
            "clean-room.json": msgspec.json.encode(room(HARM, reason=HARM, first=verified(HARM))),
            "verifier/test-stdout.txt": (HARM + LONG + "\n").encode() * 3,
            "artifacts/page.html": b"<!doctype html><script>window.hacked=4</script>"
            + HARM.encode(),
            "artifacts/picture.svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(5)'/>",
            "artifacts/lie.png": b"<html><script>window.hacked=6</script></html>",
            "artifacts/true.png": PNG,
            "artifacts/<b onmouseover=alert(7)>.txt": b"a name",
            "agent/" + "long" * 60 + ".log": LONG.encode(),
        },
        **{
            "task.task_id": shown + LONG[:3000],
            "task.task_revision": shown,
            "agent.adapter": shown,
            "agent.model": shown + LONG[:3000],
            "agent.configuration": {shown: [shown, LONG]},
            "environment.runtime_image": shown + LONG[:3000],
            "environment.tool_versions": {shown: shown},
            "inputs.instruction": HARM + LONG,
            "evaluation.reward": 0.0,
            "evaluation.breakdown": {shown: shown},
        },
    )
