"""The counts of aec-bench's summaries, which are ours too, except for docs/assurance/errata.md."""

import json
from pathlib import Path

import pytest

from proctor.traces.entry import TraceKind
from proctor.traces.summary import TraceSummary, summarise_file
from tests.conformance.vectors import Line, line_params, load_lines

ERRATA = Path(__file__).parents[2] / "docs" / "assurance" / "errata.md"
OTHERWISE = {
    *("exit_code_absent_not_error", "conv_error_lowercase_not_matched"),
    *(f"conv_error_pattern_{number}" for number in (1, 2, 3, 5)),
    *("conv_false_positive_on_success", "conv_tool_role_list_content"),
    *("conv_openai_arguments_bad_json", "conv_anthropic_nonbash_command_used"),
    *("conv_used_calc_needs_heat_load_script", "conv_list_content_hides_tool_calls"),
}
"""Where our counts differ."""
NO_COUNTERPART = {
    *("calc_tool_name_substring", "wrote_output_md", "wrote_output_jsonl"),
    *("output_json_not_counted", "write_via_arguments_not_counted", "agg_mixed"),
    *("rep_breakdown_score_max_score_pairs", "rep_turns_from_agent_result_not_from_trace"),
    *("rep_turns_float_truncated", "rep_turns_bad_string_raises"),
}
"""What only aec-bench computes."""
INSTEAD_OF_A_CRASH = {
    # The line is left out, and with it all there was.
    "missing_step_rejected": (0, 0, 0),
    # What is wrong with a line is left out; the rest of it counts.
    "unknown_field_rejected": (1, 1, 0),
    "float_exit_code_1_5_rejected": (1, 0, 1),
    "malformed_line_raises": (1, 1, 0),
    "conv_malformed_line_raises": (1, 1, 0),
    # Lines end at \n and nowhere else.
    "raw_u2028_inside_string_breaks_reader": (1, 1, 0),
    "raw_u0085_inside_string_breaks_reader": (1, 1, 0),
}
"""Entries, those of the assistant, and results."""


def summarise(place: Path, given: Line) -> TraceSummary:
    """Our summary of a vector's trace; a trajectory goes before a conversation."""
    for kind in (TraceKind.TRAJECTORY, TraceKind.CONVERSATION):
        if given.get(f"{kind}_raw") is not None:
            text = given[f"{kind}_raw"]
        elif given.get(kind) is not None:
            text = "".join(f"{json.dumps(row)}\n" for row in given[kind])
        else:
            continue
        path = place / f"{kind}.jsonl"
        path.write_text(text, encoding="utf-8", newline="")
        return summarise_file(str(path), kind)
    raise AssertionError("a vector without a trace")


@pytest.mark.parametrize("vector", line_params("trace_summary"))
def test_counts_are_aec_benchs(vector: Line, tmp_path: Path) -> None:
    name = vector["name"]
    if name in NO_COUNTERPART:
        return
    found = summarise(tmp_path, {**(vector["inputs"] or {}), "trajectory": vector["trajectory"]})
    roles = found.by_role.get("assistant", 0), found.by_role.get("tool_result", 0)
    if name in INSTEAD_OF_A_CRASH:
        assert "error_type" in vector["output"]
        assert (found.messages, *roles) == INSTEAD_OF_A_CRASH[name]
        return
    signals = vector["output"]["signals"]
    counted = {
        "total_messages": found.messages,
        "assistant_messages": roles[0],
        "tool_result_messages": roles[1],
        "tool_call_count": found.tool_calls,
        "bash_tool_call_count": found.by_tool.get("bash", 0),
        "tool_errors": found.errors.total,
    }
    same = counted == {key: signals[key] for key in counted}
    assert same == (name not in OTHERWISE)


def test_the_page_of_errata_names_every_vector_that_does_not_apply() -> None:
    page = ERRATA.read_text(encoding="utf-8")
    known = {each["name"] for each in load_lines("trace_summary")}
    for name in OTHERWISE | NO_COUNTERPART:
        assert f"`{name}`" in page
        assert name in known
