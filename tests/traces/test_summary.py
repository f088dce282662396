"""Numbers of a trace add up, whatever is in it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.traces.counts import MOST_GAPS, Steps
from proctor.traces.entry import Entry
from proctor.traces.summary import TraceSummary, describe_labels, merge_parts, summarise
from tests.examples import examples
from tests.traces.samples import called, entries, gave, ran, said


@settings(max_examples=examples(150))
@given(st.lists(entries, max_size=30))
def test_any_entries_give_numbers_that_add_up(trace: list[Entry]) -> None:
    found = summarise(trace)
    counted = [entry for entry in trace if entry.call_type != "warmup"]
    assert found.messages == sum(found.by_role.values()) == len(counted)
    assert found.warmup == len(trace) - len(counted)
    assert found.tool_calls == sum(found.by_tool.values())
    errors = found.errors
    assert sum(errors.by_reason.values()) == sum(errors.by_tool.values()) == errors.total
    assert errors.total <= errors.results
    assert (errors.first is None) == (errors.last is None) == (errors.total == 0)
    assert found.turns <= len({entry.step for entry in counted})
    assert found.loops.repeats <= found.tool_calls
    msgspec.json.encode(found)


@given(st.lists(st.integers(min_value=0, max_value=40), max_size=60))
def test_different_steps_are_counted_in_any_order(steps: list[int]) -> None:
    counting = Steps()
    for step in steps:
        counting.add(step)
    assert counting.count == len(set(steps) - {0})
    assert counting.is_exact


def test_more_gaps_than_are_kept_make_the_count_a_least_one() -> None:
    counting = Steps()
    for step in range(2, 2 * MOST_GAPS + 6, 2):
        counting.add(step)
    assert counting.count == MOST_GAPS + 2
    assert not counting.is_exact


def test_a_turn_is_a_step_above_0_where_the_agent_said_or_called_something() -> None:
    trace = [
        Entry(role="user", step=0, content="go"),
        said(0),
        said(1),
        called(1),
        gave(1),
        Entry(role="user", step=2, content="hm"),
        called(3),
        said(4, call_type="warmup"),
        gave(5),
    ]
    assert summarise(trace).turns == 2


def test_warmup_is_left_out_and_subagents_are_counted_apart() -> None:
    trace = [
        said(1, call_type="warmup"),
        gave(1, 1, call_type="warmup"),
        called(2, call_type="subagent"),
        gave(2, 1, call_type="subagent"),
        *ran(3, "ls", 2),
    ]
    found = summarise(trace)
    assert (found.warmup, found.messages, found.errors.total) == (2, 4, 2)
    apart = found.subagents
    assert (apart.messages, apart.tool_calls, apart.tool_errors) == (2, 1, 1)


def test_labels_become_shares() -> None:
    behaviour = describe_labels({"verification": 1, "execution": 2})
    assert list(behaviour.counts.items()) == [("execution", 2), ("verification", 1)]
    assert behaviour.shares == pytest.approx({"execution": 2 / 3, "verification": 1 / 3})


def test_parts_are_summed_and_their_errors_say_where_they_were() -> None:
    one = summarise([said(1), *ran(1, "a", 1, "first")])
    two = summarise([said(1), *ran(1, "b"), said(2), *ran(2, "c", 2, "last")])
    parts = [
        msgspec.structs.replace(part, part=name, source="trajectory")
        for part, name in ((one, "build"), (two, "check"))
    ]
    whole = merge_parts(parts)
    assert (whole.turns, whole.tool_calls, whole.errors.total) == (3, 3, 2)
    assert whole.errors.first is not None
    assert whole.errors.last is not None
    assert (whole.errors.first.part, whole.errors.last.part) == ("build", "check")
    assert whole.source == "trajectory"
    assert merge_parts([one]) is one
    assert merge_parts([]) == TraceSummary()


def embedded(depth: int) -> dict[str, object]:
    """Subagents in subagents, each of which refers to the others."""
    step: dict[str, object] = {
        "tool_calls": [{}],
        "observation": {"results": [{"subagent_trajectory_ref": [{"trajectory_id": "t0"}]}]},
    }
    inner: list[object] = [] if depth == 0 else [embedded(depth - 1)]
    return {"trajectory_id": f"t{depth}", "steps": [step], "subagent_trajectories": inner}


def test_subagents_that_refer_to_each_other_are_counted_once() -> None:
    document = {"document": {"subagent_trajectories": [embedded(3), "no trajectory"]}}
    elsewhere = {"subagent_trajectory_ref": [{"trajectory_path": "../loop.json"}]}
    trace = [said(1, metadata={"atif": document}), gave(1, metadata={"atif": elsewhere})]
    found = summarise(trace).subagents
    assert (found.embedded, found.embedded_steps, found.embedded_tool_calls) == (4, 4, 4)
    assert found.elsewhere == 1


def test_repeated_calls_are_found_in_a_row_and_in_all() -> None:
    commands = ["a", "b", "b", "b", "a", "c", "a"]
    loops = summarise([called(step, command) for step, command in enumerate(commands, 1)]).loops
    assert loops.repeats == 4
    assert loops.longest is not None
    assert (loops.longest.command, loops.longest.times) == ("b", 3)
    assert (loops.longest.first_step, loops.longest.last_step) == (2, 4)
    assert [(each.command, each.times, each.steps) for each in loops.most] == [
        ("a", 3, (1, 5, 7)),
        ("b", 3, (2, 3, 4)),
    ]


def test_the_same_command_of_another_tool_or_with_other_arguments_is_no_repeat() -> None:
    trace = [
        called(1, "x", "bash"),
        called(2, "x", "python"),
        called(3, "", "read", arguments={"path": "a"}),
        called(4, "", "read", arguments={"path": "b"}),
        called(5, "", "read", arguments={"path": "b"}),
    ]
    assert summarise(trace).loops.repeats == 1


def test_roles_and_tools_beyond_a_thousand_names_are_counted_as_others() -> None:
    trace = [Entry(role=f"r{number}", step=1) for number in range(1500)]
    found = summarise(trace)
    assert found.messages == 1500
    assert found.by_role["(others)"] == 500
