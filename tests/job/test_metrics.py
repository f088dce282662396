"""Which metrics a running job computes, and that they can be computed."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import ConfigError, MetricError
from proctor.harbor.stats import Trial, TrialTable, assemble_final
from proctor.job.metrics import find_metrics, make_metrics
from proctor.reward.steps import Verdict
from tests.job.small_tasks import job_config, resolve, write_dataset, write_task


@pytest.mark.usefixtures("uv_on_path")
def test_the_metrics_of_a_job_are_ready_to_be_computed(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "set", "a")
    script = tmp_path / "metric.py"
    script.write_text(
        "import json, sys\n"
        "rewards = [json.loads(line) for line in open(sys.argv[2])]\n"
        "json.dump({'seen': len(rewards)}, open(sys.argv[4], 'w'))\n"
    )
    config = job_config(
        datasets=[{"path": dataset}],
        metrics=[{"type": "max"}, {"type": "uv-script", "kwargs": {"script_path": str(script)}}],
    )
    metrics = make_metrics(find_metrics(config, resolve(config)))
    trials = [
        Trial(name=f"t{n}", task="a", agent="nop", source="set", verdict=Verdict({"reward": n}))
        for n in (1, 3, 2)
    ]
    stats = assemble_final(TrialTable(trials), metrics)
    assert stats.evals["nop__set"].metrics == [{"max": 3}, {"seen": 3}]
    script.write_text("raise SystemExit('no')")
    with pytest.raises(MetricError, match="Failed to compute custom metric: no"):
        assemble_final(TrialTable(trials), metrics)


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        ({"type": "mean", "kwargs": {"k": 1}}, "metrics: mean takes no k"),
        ({"type": "uv-script"}, "expected the path of a Python file that is there"),
        ({"type": "uv-script", "kwargs": {"script_path": "none.py"}}, "script_path 'none.py'"),
    ],
)
def test_a_metric_that_cannot_be_made_is_refused(
    tmp_path: Path, metric: dict[str, Any], sentence: str
) -> None:
    dataset = write_dataset(tmp_path / "set", "a")
    config = job_config(datasets=[{"path": dataset}], metrics=[metric])
    with pytest.raises(ConfigError, match=sentence):
        find_metrics(config, resolve(config))


def test_a_metric_script_of_a_directory_is_noted_not_run(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "set", "a")
    (dataset / "metric.py").write_text("")
    config = job_config(datasets=[{"path": dataset}])
    resolved = resolve(config)
    assert [one.name for one in find_metrics(config, resolved)["set"]] == ["mean"]
    assert "its metric.py is not run, as in harbor 0.13.1" in resolved.notes[0]


def test_a_task_may_be_said_to_be_of_a_dataset(tmp_path: Path) -> None:
    write_task(tmp_path / "one")
    config = job_config(tasks=[{"path": tmp_path / "one", "source": "elsewhere"}])
    found = find_metrics(config, resolve(config))
    assert {name: len(metrics) for name, metrics in found.items()} == {"adhoc": 1, "elsewhere": 1}
