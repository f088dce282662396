"""What every command and page counts of an experiment: one value for each number that it shows.

trials      all that are listed        counted     in the numbers
scored      counted, with rewards      missing     counted, without one: as 0
superseded, attempts, withheld         in no number
errored     counted, with an exception
mean        harbor's, of the counted   rescored    counted, and marked again later
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from proctor.api import load
from proctor.ledger.claims.operands import FROM_BREAKDOWN, FROM_REWARD
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.cli.programs import Proctor, Ran
from tests.report.board_ledgers import DATASET

type Counts = dict[str, object]
type Document = Any


def read(ran: Ran) -> Document:
    """What a command printed; it must not have failed otherwise than by its exit code."""
    assert ran.code in (0, 1), ran
    return json.loads(ran.out)


def view_all(
    proctor: Proctor, ledger: Path, experiment: str, scratch: Path, dataset: str = DATASET
) -> dict[str, Counts]:
    """Every view of an experiment that there is."""
    asked = (proctor, ledger, experiment)
    views = {
        "list": view_list(*asked),
        "trace summary": view_summary(*asked),
        "report": view_report(*asked),
        "board": view_board(*asked, dataset),
        "policy": view_policy(*asked),
        "claim": view_claim(*asked, scratch),
        "gate": view_gate(*asked),
        "proctor.load": count_rows(load(ledger)[experiment].rows),
        **view_pages(ledger, experiment, dataset),
    }
    return {name: counts for name, counts in views.items() if counts}


def view_list(proctor: Proctor, ledger: Path, experiment: str) -> Counts:
    rows = read(proctor("ledger", "list", "--experiment", experiment, "--json", "--ledger", ledger))
    status = Counter(row["status"] for row in rows)
    return {
        "trials": len(rows),
        "superseded": status["superseded"],
        "attempts": status["begun again"],
        "withheld": status["withheld"],
    }


def view_summary(proctor: Proctor, ledger: Path, experiment: str) -> Counts:
    ran = proctor("trace", "summary", "--experiment", experiment, "--json", "--ledger", ledger)
    found = read(ran)
    whole, left_out = found["experiment"], found["left_out"]
    assert whole["without_record"] == 0
    return {
        "trials": whole["trials"] + sum(left_out.values()),
        "counted": whole["trials"],
        "scored": whole["scored"],
        "missing": whole["trials"] - whole["scored"],
        "superseded": left_out.get("superseded", 0),
        "attempts": left_out.get("begun again", 0),
        "withheld": left_out.get("withheld", 0),
    }


def view_report(proctor: Proctor, ledger: Path, experiment: str) -> Counts:
    return count_report(
        read(proctor("report", experiment, "--ledger", ledger, "--json", "--no-behaviour"))
    )


def count_report(facts: Document) -> Counts:
    """The numbers of a report of one run."""
    (run,) = facts["runs"]
    accounts = [group["scores"]["account"] for group in facts["groups"]]
    left_out = run["left_out"]

    def total(name: str) -> int:
        return sum(account[name] for account in accounts)

    return {
        "trials": total("counted") + sum(left_out.values()),
        "counted": total("counted"),
        "scored": total("scored"),
        "missing": total("zero_by_missing"),
        "superseded": left_out.get("superseded", 0),
        "attempts": left_out.get("begun again", 0),
        "withheld": left_out.get("withheld", 0),
        "errored": sum(group["errored"] for group in facts["groups"]),
        "mean": _mean_of([(each["counted"], each["mean_errors_as_zero"]) for each in accounts]),
    }


def _mean_of(parts: list[tuple[int, float | None]]) -> float | None:
    """The mean over all, of the means over some; None if one of them has none."""
    size = sum(n for n, _ in parts)
    if not size or any(n and mean is None for n, mean in parts):
        return None
    return round(sum(n * (mean or 0.0) for n, mean in parts) / size, 9)


def view_board(proctor: Proctor, ledger: Path, experiment: str, dataset: str) -> Counts:
    ran = proctor("board", "--dataset", dataset, "--json", "--ledger", ledger)
    if ran.code == 2:
        assert "no trial of the dataset" in ran.err
        return {}
    board = read(ran)
    rows = [row for section in board["sections"] for row in section["rows"]]
    trials = [each for row in rows for each in row["trials"]]
    ours = [each for each in trials if each["trial"].startswith(f"{experiment}/")]
    if not ours:
        return {}
    counted = [each for each in ours if each["status"] == "counted"]
    firsts = [
        each["marked_again"]["former"] if "marked_again" in each else each["reward"]
        for each in counted
    ]
    numberless = sum(each["reward"] is None and each["reason"] is None for each in counted)
    gone = [each for each in board["withheld"]["trials"] if _is_of(each["name"], experiment)]
    status = Counter(each["status"] for each in ours)
    return {
        "trials": len(ours) + len(gone),
        "counted": len(counted),
        "scored": sum(reward is not None for reward in firsts) + numberless,
        "missing": sum(reward is None for reward in firsts) - numberless,
        "superseded": status["superseded"],
        "attempts": status["begun_again"],
        "withheld": len(gone),
        "errored": sum(each["exception"] is not None for each in counted),
        "rescored": sum("marked_again" in each for each in counted),
        "mean": _mean_of([(1, reward or 0.0) for reward in firsts]),
        **_check_rows(rows),
    }


def _check_rows(rows: list[Document]) -> Counts:
    """The cells of a board are those of its trials."""
    for row in rows:
        parts, status = row["denominators"], Counter(each["status"] for each in row["trials"])
        names = ("counted", "superseded", "begun_again")
        assert [parts[name] for name in names] == [status[name] for name in names]
        counted = [each for each in row["trials"] if each["status"] == "counted"]
        rewards = [each["reward"] or 0.0 for each in counted]
        if parts["no_number"]:
            assert row["score"] is None
            continue
        assert row["score"] == (pytest.approx(sum(rewards) / len(rewards)) if rewards else None)
    return {}


def _is_of(name: str, experiment: str) -> bool:
    return name.startswith(f"{experiment}/")


def view_policy(proctor: Proctor, ledger: Path, experiment: str) -> Counts:
    ran = proctor("check", experiment, "--policy", "leaderboard", "--ledger", ledger, "--json")
    return count_verdict(read(ran))


def count_verdict(found: Document) -> Counts:
    """The numbers of a policy's verdict on one submission."""
    (verdict,) = found["submissions"]
    counts, codes = verdict["counts"], Counter(each["code"] for each in verdict["failures"])
    assert verdict["trials"] == counts["counted"] + counts["withheld"]
    assert counts["counted"] == counts["scored"] + counts["zero_by_missing"]
    assert counts["no_number"] <= counts["scored"]
    # A withheld trial fails it by name.
    assert (codes["withheld-trial"] > 0) == (counts["withheld"] > 0)
    return _renamed(counts)


def _renamed(counts: Document) -> Counts:
    names = {
        "counted": "counted", "superseded": "superseded", "attempts": "attempts",
        "withheld": "withheld", "scored": "scored", "zero_by_missing": "missing",
        "errored": "errored", "rescored": "rescored", "entries": "trials",
    }  # fmt: skip
    return {ours: counts[theirs] for theirs, ours in names.items() if theirs in counts}


def view_claim(proctor: Proctor, ledger: Path, experiment: str, scratch: Path) -> Counts:
    path = scratch / f"{experiment}.claim.json"
    path.unlink(missing_ok=True)
    ran = proctor("ledger", "claim", "--experiment", experiment, "-o", path, "--ledger", ledger)
    assert ran.code == 0, ran
    claim = json.loads(path.read_bytes())
    counts = claim["counts"]
    checked = proctor("check", path)
    assert checked.code == 0, checked
    groups = claim["certificate"]["groups"]
    means = [(len(group["trials"]), _mean_in(group)) for group in groups]
    found = {**_renamed(counts), "mean": _mean_of(means)}
    bases = {trial["basis"] for group in groups for trial in group["trials"]}
    if bases & {FROM_BREAKDOWN, FROM_REWARD}:
        # Claims count the reason of a trial that was sealed without a certificate as an exception.
        del found["errored"]
    return found


def _mean_in(group: Document) -> float | None:
    (metric,) = group["metrics"]
    values = list((metric["result"] or {}).values())
    if len(values) != 1:
        return None
    return float.fromhex(values[0]) if isinstance(values[0], str) else float(values[0])


def view_gate(proctor: Proctor, ledger: Path, experiment: str) -> Counts:
    return count_gate(proctor("gate", experiment, "--min-mean", "-9", "--ledger", ledger, "--json"))


def count_gate(ran: Ran) -> Counts:
    """The numbers of a gate over one run; none if it asks which of several rewards is meant."""
    if ran.code == 2:
        assert "pass --reward-key" in ran.err, ran
        return {}
    (run,) = json.loads(ran.out)["runs"]
    parts, groups = run["denominators"], run["groups"]
    return {
        "counted": parts["run"],
        "withheld": parts["withheld"],
        "superseded": parts["superseded"] - parts["attempts"],
        "attempts": parts["attempts"],
        "errored": run["errors"]["errored"],
        "scored": sum(group["scored"] for group in groups),
        "missing": sum(group["zero_by_missing"] for group in groups),
        "mean": _mean_of([(group["run"], group["mean"]) for group in groups]),
    }


def count_listed(proctor: Proctor, job: Path) -> Counts:
    """The trials that `proctor show` lists of a job."""
    found = read(proctor("show", job, "--json"))
    outcomes = Counter(each["outcome"] for each in found["trials"])
    attempts = found["not_listed"].get("begun again", 0)
    passed = outcomes["passed"]
    return {**count_rows(found["trials"]), "attempts": attempts, "passed": passed}


def count_rows(rows: Sequence[Document]) -> Counts:
    """Trials that count, each with its reward and its exception."""
    missing = sum(row["reward"] is None and row["reason_code"] is not None for row in rows)
    return {
        "counted": len(rows),
        "scored": len(rows) - missing,
        "missing": missing,
        "errored": sum(row["exception"] is not None for row in rows),
        "mean": _mean_of([(1, row["reward"] or 0.0) for row in rows]),
    }


def count_head(proctor: Proctor, job: Path) -> Counts:
    """The line above the list that `proctor show` prints of a job."""
    head = proctor("show", job).out.partition("\n")[0]
    found = {name: int(number) for number, name in _COUNTED.findall(head.replace(",", ""))}
    passed, missing = found.get("passed", 0), found.get("not scored", 0)
    scored = passed + found.get("failed", 0) + found.get("without a number", 0)
    return {
        "counted": found["trial"],
        "scored": scored,
        "missing": missing,
        "errored": found.get("errored", 0),
        "passed": passed,
    }


def count_outcome(proctor: Proctor, job: Path) -> Counts:
    """The result line of a job."""
    summary = read(proctor("outcome", job, "--json"))["summary"]
    return {"counted": summary["total"], "is errored": summary["status"] == "failed"}


async def _fetch(source: DataSource, paths: Sequence[str]) -> list[str]:
    transport = httpx.ASGITransport(app=make_app(source))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return [(await client.get(path)).text for path in paths]


_COUNTED = re.compile(r" (\d+) (trial|passed|failed|without a number|not scored|errored)")
_FIGURE = re.compile(r"<dt>([^<]*)</dt><dd>(?:<span[^>]*>)?([^<]*)")
_TITLE = re.compile(r'<dt>Score</dt><dd><span title="([^"]*)"')


def view_job_page(job: Path) -> Counts:
    """The page of a job's directory."""
    source = DataSource(jobs=(job,))
    (page,) = asyncio.run(_fetch(source, [f"/experiments/{job.name}"]))
    return count_page(page)


def count_page(page: str) -> Counts:
    """The figures at the head of the page of a job or an experiment."""
    figures = dict(_FIGURE.findall(page))
    shown = _TITLE.search(page)
    whole = {
        "counted": "Ended", "scored": "Scored", "missing": "Not scored", "errored": "Errored",
        "superseded": "Superseded", "attempts": "Earlier attempts", "withheld": "Withheld",
    }  # fmt: skip
    counts: Counts = {ours: int(figures.get(name, 0)) for ours, name in whole.items()}
    if shown is not None:
        counts["mean"] = round(float(shown[1]), 9)
    return counts


def view_pages(ledger: Path, experiment: str, dataset: str) -> dict[str, Counts]:
    """The page of the experiment, and what the first page says of it."""
    paths = (f"/experiments/{experiment}", "/")
    page, front = asyncio.run(_fetch(DataSource(ledger=ledger), paths))
    row = re.search(rf'<th scope="row"><a [^>]*>{experiment}</a>(.*?)</tr>', front, re.DOTALL)
    assert row is not None
    labels = '"(?:Trials|Not scored|Errored)"'
    found = re.findall(rf'data-label={labels} class="n(?: extra)?">(\d+)</td>', row[1])
    cells = [int(each) for each in found]
    listed: Counts = dict(zip(("counted", "missing", "errored"), cells, strict=True))
    for name in ("withheld", "superseded"):
        tag = re.search(rf"(\d+) {name}", row[1])
        listed[name] = int(tag[1]) if tag else 0
    return {"page of the experiment": count_page(page), "page of experiments": listed}
