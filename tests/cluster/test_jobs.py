"""Jobs on a cluster: what they score, what travels, what is refused, how they are cancelled."""

import re
import shutil
import signal
from dataclasses import dataclass
from typing import Any

import pytest

from proctor.ledger.verification.verify import verify_ledger
from tests.cluster.drivers import Site, finish, time_until
from tests.cluster.ray_cluster import CLIENT, ROOT
from tests.environments.sandbox.rootfs import PROGRAMS, make_rootfs
from tests.gateway.providers import KEY, Provider, Reply, running
from tests.serve.servers import serving

DIFFERENT = {"trial_id", "experiment_id", "timestamp", "timing", "node"}


def compare(record: Any) -> Any:
    """A record without what differs from run to run."""
    if isinstance(record, dict):
        return {key: compare(value) for key, value in record.items() if key not in DIFFERENT}
    return [compare(each) for each in record] if isinstance(record, list) else record


@dataclass(frozen=True)
class Left:
    """What a job left, and what its display showed."""

    records: list[Any]
    files: list[list[str]]
    phases: list[list[str]]


def run_examples(site: Site, on: str) -> Left:
    """Run the examples, and remove the job."""
    ran = finish(site.start_run("-a", "oracle", "--debug", on=on))
    assert ran.code == 0, ran.err
    assert site.rewards() == [1.0, 1.0]
    # Sealed here, wherever it ran.
    assert set(site.find_sealed()) == {trial.name for trial in site.trials}
    assert verify_ledger(site.top / "ledger").damage == []
    left = Left(
        [site.load(trial, "record.json") for trial in site.trials],
        [sorted(path.name for path in trial.rglob("*")) for trial in site.trials],
        [re.findall(rf"^{trial.name}: (\S+)$", ran.err, re.MULTILINE) for trial in site.trials],
    )
    shutil.rmtree(site.job)
    shutil.rmtree(site.top / "ledger")
    return left


def test_scores_and_records_are_those_of_a_local_run(site: Site) -> None:
    shutil.copytree(ROOT / "examples" / "tasks", site.top / "tasks")
    local = run_examples(site, "local")
    assert all({"setup", "agent", "verify", "record"} < set(each) for each in local.phases)
    for on in ("ray", CLIENT):
        remote = run_examples(site, on)
        assert all(each["environment"]["tool_versions"]["node"] for each in remote.records)
        assert list(map(compare, remote.records)) == list(map(compare, local.records))
        assert (remote.files, remote.phases) == (local.files, local.phases)


def test_what_an_agent_reads_travels_and_large_evidence_is_sealed_by_a_server(site: Site) -> None:
    site.make_task("t")
    tree = site.top / "agent"
    tree.mkdir()
    (tree / "run.sh").write_text(
        "#!/bin/sh\ntouch /tmp/done\nhead -c 5000000 /dev/urandom > /logs/agent/large\n"
        'echo "$GREETING" > /logs/agent/greeting\n'
    )
    (tree / "run.sh").chmod(0o755)
    (site.top / "served").mkdir()
    with site.cluster.entered(), serving(site.top / "served") as served:
        machine = served.machine(experiments=("job",))
        site.variables |= {**machine.env, "GREETING": "hello from the driver"}
        words = ("--agent-tree", tree, "--command", "/installed-agent/run.sh", "-k", 2)
        ran = site.run(*words, "--ae", "GREETING=${GREETING}", "--ledger", served.url)
    assert ran.code == 0, ran.err
    assert site.rewards() == [1.0, 1.0]
    assert sorted(served.trials()) == [trial.name for trial in site.trials]
    assert verify_ledger(served.directory).damage == []
    for trial in site.trials:
        assert (trial / "agent" / "large").stat().st_size == 5_000_000
        assert (trial / "agent" / "greeting").read_text() == "hello from the driver\n"


def test_keys_stay_with_the_gateway_and_limits_hold_for_the_whole_job(site: Site) -> None:
    site.make_task("t")
    shutil.copytree(ROOT / "tests" / "gateway" / "programs", site.top / "agent")
    config = site.top / "limits.yaml"
    config.write_text("proctor: {models: {job_limits: {requests: 4}}}\n")
    provider = Provider(script=[Reply(text=f"answer {n}") for n in range(20)])
    with site.cluster.entered(), running(provider):
        site.variables["OPENAI_API_KEY"] = KEY
        ran = site.run(
            *("-m", "openai/gpt-4o", "--agent-tree", site.top / "agent", "-k", 2, "-n", 1),
            *("--command", "python3 /installed-agent/asking_agent.py 3; touch /tmp/done"),
            *("--model-endpoint", f"openai=http://127.0.0.1:{provider.port}/v1"),
            *("-c", config),
        )
    assert "limit reached: requests of a job" in ran.err
    assert len(provider.asked) == 4
    keys = [asked.headers["authorization"] for asked in provider.asked]
    assert set(keys) == {f"Bearer {KEY}"}
    results = [site.load(trial)["agent_result"]["metadata"] for trial in site.trials]
    assert sorted(each["model_requests"] for each in results) == [1, 3]
    for trial in site.trials:
        assert (trial / "agent" / "model-calls.jsonl").read_text().count("\n") > 1
        assert (trial / "agent" / "model-trace.jsonl").exists()
    files = [path for path in site.job.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("words", "toml", "said"),
    [
        ((), "[environment]\ncpus = 64\n", "no node of the cluster fits task"),
        (("--ek", "base=no-such-image"), "", "no-such-image"),
    ],
)
def test_what_no_node_can_run_is_said_at_once(
    site: Site, words: tuple[object, ...], toml: str, said: str
) -> None:
    site.make_task("t", f'schema_version = "1.3"\n{toml}')
    ran = site.run("-a", "nop", *words)
    assert ran.code == 2
    assert said in ran.err
    assert not site.job.exists()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RAY_AUTH_TOKEN": "0" * 64}, "refuses this machine's token"),
        ({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""}, "expects a token"),
        ({"RAY_ADDRESS": "127.0.0.1:1"}, "no cluster answers"),
        ({"RAY_ADDRESS": ""}, "RAY_ADDRESS is not set"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_a_sentence(
    site: Site, variables: dict[str, str], said: str
) -> None:
    site.make_task("t")
    site.variables |= variables
    ran = site.run("-a", "nop")
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert not site.job.exists()


@pytest.mark.parametrize("on", ["ray", pytest.param(CLIENT, marks=pytest.mark.soak)])
def test_ctrl_c_ends_sandboxes_and_resume_works_elsewhere(site: Site, on: str) -> None:
    site.make_task("t")
    command = "touch /tmp/done; echo begun > /logs/agent/begun; sleep ${SECONDS_TO_SLEEP:-0}"
    words = ("--command", command, "-k", 4, "--ae", "SECONDS_TO_SLEEP=${SECONDS_TO_SLEEP}")
    site.variables["SECONDS_TO_SLEEP"] = "600"
    with site.running(4, *words, on=on) as driver:
        # Not the group: nsenter has become the driver.
        driver.send_signal(signal.SIGINT)
        assert time_until(lambda: not site.find_asleep()) < 2
        ran = finish(driver)
    assert ran.code == 130
    assert [(trial / "agent" / "begun").read_text() for trial in site.trials] == ["begun\n"] * 4
    errors = [site.load(trial)["exception_info"]["exception_type"] for trial in site.trials]
    assert errors == ["CancelledError"] * 4
    site.variables["SECONDS_TO_SLEEP"] = "0"
    ran = site.proctor("resume", site.job)
    assert ran.code == 0, ran.err
    assert site.rewards() == [1.0] * 4
    assert len(list(site.job.glob("*/attempts/1/record.json"))) == 4


def test_a_running_trial_is_shown_by_the_drivers_files(site: Site) -> None:
    site.make_task("t")
    (site.top / "script").write_text("touch /tmp/done\nsleep 600\n")
    with site.running(1, "-a", "scripted", "--ak", f"script={site.top / 'script'}"):
        (trial,) = site.trials
        trace = trial / "agent" / "trajectory.jsonl"
        assert time_until(lambda: trace.exists() and "touch /tmp/done" in trace.read_text()) < 10
        record = site.load(trial, "record.json")
        assert record["trial_id"] == trial.name
        assert record["environment"]["tool_versions"]["node"]


def test_an_image_travels_to_nodes_that_lack_it(site: Site) -> None:
    task = site.make_task("t")
    (task / "environment" / "Dockerfile").write_text("FROM tiny:1\n")
    rootfs = make_rootfs(site.top / "rootfs", (*PROGRAMS, "bash"))
    (rootfs / "etc" / "tiny").write_text("here\n")
    (rootfs / "etc" / "tiny").chmod(0o640)
    imported = site.proctor("image", "import", "tiny:1", rootfs)
    assert imported.code == 0, imported.err
    ran = site.run("--command", "cat /etc/tiny > /logs/agent/tiny", "-k", 2)
    assert ran.code == 0, ran.err
    for trial in site.trials:
        assert (trial / "agent" / "tiny").read_text() == "here\n"
        image = site.load(trial, "record.json")["environment"]["runtime_image"]
        assert image.startswith("tiny:1")
