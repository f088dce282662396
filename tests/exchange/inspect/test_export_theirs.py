"""What `proctor export --format inspect` writes, as the real inspect_ai and its viewer read it."""

from pathlib import Path

from tests.cli.programs import Proctor
from tests.exchange.inspect.test_export import export, read_log
from tests.exchange.inspect.theirs import bundle_theirs, list_theirs, read_theirs
from tests.exchange.sealed import TRAJECTORY, seal_job, trajectory
from tests.ledger.trials import open_ledger, seal_files

JOBS = ("06-errors-oracle-k1", "14-two-models", "16-agent-nonzero", "17-agent-hang")


def test_inspect_reads_our_logs(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        for job in JOBS:
            seal_job(ledger, job)
        seal_files(ledger, "own", {TRAJECTORY: trajectory()})
    logs = export(proctor, tmp_path / "ledger", tmp_path / "out")
    for path, theirs in zip(logs, read_theirs(*logs), strict=True):
        header, samples = read_log(path)
        assert (theirs["status"], theirs["model"]) == ("success", header["eval"]["model"])
        assert theirs["eval_id"] == header["eval"]["eval_id"]
        assert len(theirs["samples"]) == len(samples)
        for read in theirs["samples"]:
            sample = samples[f"samples/{read['id']}_epoch_{read['epoch']}.json"]
            assert read["input"] == sample["input"]
            scores = sample.get("scores", {})
            assert read["scores"] == {name: score["value"] for name, score in scores.items()}
            assert (read["error"] is None) == ("error" not in sample)
            assert [each["role"] for each in read["messages"]] == [
                each["role"] for each in sample["messages"]
            ]
            assert [each["calls"] for each in read["messages"]] == [
                [[call["id"], call["function"], call["arguments"]] for call in calls]
                for each in sample["messages"]
                for calls in [each.get("tool_calls", [])]
            ]


def test_inspects_list_and_viewer_open_our_logs(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_job(ledger, "14-two-models")
        seal_files(ledger, "own", {TRAJECTORY: trajectory()})
    logs = export(proctor, tmp_path / "ledger", tmp_path / "out")
    listed = list_theirs(tmp_path / "out")
    assert len(listed) == len(logs) == 3
    for each in listed:
        assert each["messages"] == each["counted"]
    assert sum(len(each["ids"]) for each in listed) == 13
    bundle_theirs(tmp_path / "out", tmp_path / "page")
    assert (tmp_path / "page" / "index.html").is_file()
    assert len(list((tmp_path / "page" / "logs").glob("*.eval"))) == 3


def test_logs_of_inspect_come_back_as_they_were(
    proctor: Proctor, tmp_path: Path, real_logs: Path
) -> None:
    options = ("--ledger", tmp_path / "ledger")
    assert proctor("import", "inspect", real_logs / "eval", *options).code == 0
    logs = export(proctor, tmp_path / "ledger", tmp_path / "out")
    theirs, ours = (
        sorted(read_theirs(*paths), key=lambda log: str(log["task"]))
        for paths in ((real_logs / "eval").rglob("*.eval"), logs)
    )
    for one, other in zip(theirs, ours, strict=True):
        assert sorted(one["samples"], key=str) == sorted(other["samples"], key=str)
        assert (one["eval_id"], one["task"]) == (other["eval_id"], other["task"])
    again = proctor("import", "inspect", tmp_path / "out", *options)
    assert (again.code, " 0 imported" in again.out) == (0, True)
