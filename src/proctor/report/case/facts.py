"""What a case file shows, as sections of labels and values, from its data only.

The page shows this to readers without JavaScript; script/facts.js computes the same from the same
data and compares both: keep them in step, word for word.
"""

from collections.abc import Iterator
from typing import Final

from proctor.record.reasons import name_outcome
from proctor.report.case.opened import OpenedCase
from proctor.report.case.spelled import Spelled, on_one_line
from proctor.report.case.steps import find_traces, read_steps

REWARD_FILES: Final = ("verifier/reward.json", "verifier/reward.txt")
"""The reward file of a trial; the first one present decides."""
_FIRST_STEPS: Final = 8
_LEFT_OUT: Final = {"withheld": "withheld", "size": "too large to be embedded"}

type Fact = tuple[str, str]
type Section = tuple[str, list[Fact]]


def list_facts(opened: OpenedCase) -> list[Section]:
    """All sections of a case."""
    return [
        ("Score", list(_score(opened))),
        ("Trial", list(_trial(opened.entry))),
        ("Pins", list(_pins(opened.entry))),
        ("Findings", list(_findings(opened.entry)) or [("Findings", "none")]),
        ("Later entries", list(_remarks(opened)) or [("Entries", "none")]),
        ("Place in the ledger", list(_proof(opened))),
        ("Evidence", list(_evidence(opened)) or [("Files", "none")]),
        ("First steps", list(_steps(opened)) or [("Trace", "none is embedded")]),
    ]


def _score(opened: OpenedCase) -> Iterator[Fact]:
    entry = opened.entry
    evaluation, certificate = entry.at("record", "evaluation"), entry.at("score", "certificate")
    reason = entry.at("reason_code")
    has_rewards = reason.is_nothing and not evaluation.at("breakdown").is_nothing
    outcome = name_outcome(None, has_rewards=has_rewards)
    unscored = outcome if reason.is_nothing else f"{outcome} ({reason.say()})"
    reward = evaluation.at("reward")
    yield "Reward", unscored if reward.is_nothing else reward.say()
    yield "Rewards", evaluation.at("breakdown").say()
    files = [file for file in opened.evidence if file.path in REWARD_FILES]
    for file in files:
        data = opened.files.get(file.sha256)
        held = None if data is None else on_one_line(data.decode("utf-8", "replace")) or "empty"
        yield file.path, held or "not embedded"
    if not files:
        yield "Reward file", "none among the evidence"
    yield "Scored by", entry.at("score", "profile").say()
    yield "Counted as", certificate.at("rewards").say()
    yield "Basis", certificate.at("basis").say()
    yield "Exception", certificate.at("exception").say()
    yield "Group", certificate.at("group").say()


def _trial(entry: Spelled) -> Iterator[Fact]:
    record = entry.at("record")
    yield "Trial", record.at("trial_id").say()
    yield "Experiment", record.at("experiment_id").say()
    yield "Task", record.at("task", "task_id").say()
    yield "Dataset", record.at("dataset_id").say()
    yield "Agent", record.at("agent", "adapter").say()
    yield "Model", record.at("agent", "model").say()
    yield "When", record.at("timestamp").say()
    yield "Duration in seconds", record.at("timing", "total_seconds").say()
    yield "Cost in USD", record.at("cost", "estimated_cost_usd").say()
    yield "Cost basis", entry.at("cost_basis").say()
    yield "Record", record.at("completeness").say()
    yield "Instruction", record.at("inputs", "instruction").say()


def _pins(entry: Spelled) -> Iterator[Fact]:
    record = entry.at("record")
    yield "Task revision", record.at("task", "task_revision").say()
    yield "Image", record.at("environment", "runtime_image").say()
    yield "Environment", record.at("environment", "compute_backend").say()
    yield "Tools", record.at("environment", "tool_versions").say()
    yield "Agent revision", record.at("agent", "adapter_revision").say()
    yield "Settings", record.at("agent", "configuration").say()
    yield "Input files", record.at("inputs", "input_files").say()
    yield "Source", entry.at("source").say()
    yield "Slot", entry.at("slot").say()


def _findings(entry: Spelled) -> Iterator[Fact]:
    for finding in entry.at("findings").items:
        yield finding.at("code").say(), finding.at("message").say()


def _remarks(opened: OpenedCase) -> Iterator[Fact]:
    for seq, entry in opened.remarks:
        yield f"Entry {seq}", "withheld" if entry is None else _say_remark(entry)


def _say_remark(entry: Spelled) -> str:
    by, reason = entry.at("author").say(), entry.at("reason").say()
    match entry.at("kind").string:
        case "review":
            reviewer, verdict = entry.at("reviewer").say(), entry.at("verdict").say()
            return f"review by {reviewer}: {verdict}; {entry.at('note').say()}"
        case "supersede":
            heir, subject = _say_subject(entry.at("by")), _say_subject(entry.at("subject"))
            cause = entry.at("cause").say()
            return f"{heir} replaces {subject} ({cause}), by {by}: {reason}"
        case "rescore":
            return f"rescored by {entry.at('score', 'profile').say()}, by {by}: {reason}"
        case "withhold":
            return f"bytes withheld by {by}: {reason}"
        case _:
            return f"{entry.at('kind').say()} by {by}: {entry.at('text').say()}"


def _say_subject(subject: Spelled) -> str:
    return f"{subject.at('experiment_id').say()}/{subject.at('trial_id').say()}"


def _proof(opened: OpenedCase) -> Iterator[Fact]:
    checkpoint = opened.checkpoint
    yield "Entry", str(opened.case.trial)
    yield "Sealed at", opened.entry.at("at").say()
    yield "Record's SHA-256", opened.record
    yield "Ledger", on_one_line(checkpoint.origin)
    yield "Ledger size", str(checkpoint.tree.size)
    yield "Root hash", checkpoint.tree.root.hex()
    yield "Ledger key", on_one_line(opened.keys[-1].key if opened.keys else "")
    yield "Checkpoint", on_one_line(opened.case.checkpoint)
    yield "Inclusion path", " ".join(opened.path) or "empty: it is the only entry"


def _evidence(opened: OpenedCase) -> Iterator[Fact]:
    for file in opened.evidence:
        why = _LEFT_OUT.get(opened.left_out.get(file.sha256, ""), "not here")
        standing = "embedded" if file.sha256 in opened.files else why
        yield on_one_line(file.path), f"{file.size} bytes, SHA-256 {file.sha256}, {standing}"


def _steps(opened: OpenedCase) -> Iterator[Fact]:
    there = {file.path: file.sha256 for file in opened.evidence if file.sha256 in opened.files}
    outputs = opened.entry.at("record", "outputs")
    keys = ("trajectory_path", "conversation_path")
    named = [path for key in keys if (path := outputs.at(key).string)]
    for path in find_traces(list(there), named):
        steps = read_steps(path, opened.files[there[path]], _FIRST_STEPS)
        for step in steps:
            label = on_one_line(f"step {step.step} {step.role} {step.tool}")
            yield label, on_one_line(step.text) or "empty"
        if steps:
            return
