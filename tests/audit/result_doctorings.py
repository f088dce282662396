"""Falsified job results: what is done to which job, and what an audit must find."""

from proctor.audit.findings import Kind
from tests.audit.directories import edit_json
from tests.audit.doctors import (
    Doctoring,
    claim_pass_at_k_of_stopped_job,
    delete_result,
    duplicate_metric,
    empty_result,
    finish_killed_job,
    in_group,
    in_stats,
    move_in_reward_stats,
    raise_mean_of_killed_job,
    rename_group,
    reorder_contradictorily,
    tear,
)

BINARY, NOP, PASS_AT_K = "01-binary-oracle-k1", "02-binary-nop-k1", "04-binary-scripted-k5"
ERRORS, MULTI, TWO_MODELS = "06-errors-oracle-k1", "42-config-multi", "14-two-models"
KILLED, CANCELLED = "31-killed-before-resume", "30-cancelled-before-resume"
SCRIPTED = "scripted__model-x__binary"

RESULT_DOCTORINGS = [
    Doctoring(
        "the mean raised",
        BINARY,
        in_group("oracle__binary", lambda group: group.update(metrics=[{"mean": 1.0}])),
        {"result.json": {Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "the mean raised by one bit",
        BINARY,
        in_group(
            "oracle__binary", lambda group: group.update(metrics=[{"mean": 0.6666666666666667}])
        ),
        {"result.json": {Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "the mean made an int",
        NOP,
        in_group("nop__binary", lambda group: group.update(metrics=[{"mean": 0}])),
        {"result.json": {Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "the mean called max",
        BINARY,
        in_group(
            "oracle__binary", lambda group: group.update(metrics=[{"max": 0.6666666666666666}])
        ),
        {"result.json": {Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "the fourth metric raised",
        MULTI,
        in_group("oracle__binary", lambda group: group["metrics"][3].update(sum=6.0)),
        {"result.json": {Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "a metric twice",
        BINARY,
        in_group("oracle__binary", duplicate_metric),
        {"result.json": {Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "a metric removed",
        BINARY,
        in_group("oracle__binary", lambda group: group.update(metrics=[])),
        {"result.json": {Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "metrics that are no list",
        BINARY,
        in_group("oracle__binary", lambda group: group.update(metrics={"mean": 1.0})),
        {"result.json": {Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "pass@k raised",
        PASS_AT_K,
        in_group(SCRIPTED, lambda group: group["pass_at_k"].update({"5": 1.0, "2": 1.0})),
        {"result.json": {Kind.EDITED_PASS_AT_K}},
    ),
    Doctoring(
        "pass@k added",
        PASS_AT_K,
        in_group(SCRIPTED, lambda group: group["pass_at_k"].update({"1": 1.0})),
        {"result.json": {Kind.EDITED_PASS_AT_K}},
    ),
    Doctoring(
        "pass@k claimed for a stopped job",
        CANCELLED,
        claim_pass_at_k_of_stopped_job,
        {"result.json": {Kind.EDITED_PASS_AT_K}},
    ),
    Doctoring(
        "a trial moved in reward_stats",
        BINARY,
        in_group("oracle__binary", move_in_reward_stats),
        {"result.json": {Kind.EDITED_REWARD_STATS}},
    ),
    Doctoring(
        "exception_stats emptied",
        ERRORS,
        in_group("oracle__errors", lambda group: group.update(exception_stats={})),
        {
            "result.json": {Kind.EDITED_EXCEPTION_STATS},
            "build-timeout": {Kind.DIRECTORY_WITHOUT_TRIAL},
            "build-fail": {Kind.DIRECTORY_WITHOUT_TRIAL},
            "no-solution": {Kind.DIRECTORY_WITHOUT_TRIAL},
            "healthcheck-fail": {Kind.DIRECTORY_WITHOUT_TRIAL},
            "verifier-timeout": {Kind.DIRECTORY_WITHOUT_TRIAL},
            "agent-timeout-frac": {Kind.DIRECTORY_WITHOUT_TRIAL},
        },
    ),
    Doctoring(
        "n_errored_trials lowered",
        ERRORS,
        in_stats(lambda stats: stats.update(n_errored_trials=0)),
        {"result.json": {Kind.EDITED_COUNTER}},
    ),
    Doctoring(
        "n_errors of a group lowered",
        ERRORS,
        in_group("oracle__errors", lambda group: group.update(n_errors=0)),
        {"result.json": {Kind.EDITED_COUNTER}},
    ),
    Doctoring(
        "n_completed_trials lowered",
        BINARY,
        in_stats(lambda stats: stats.update(n_completed_trials=2)),
        {"result.json": {Kind.EDITED_COUNTER, Kind.MISSING_TRIALS}},
    ),
    Doctoring(
        "n_total_trials lowered",
        BINARY,
        lambda job: edit_json(job / "result.json", lambda result: result.update(n_total_trials=2)),
        {"result.json": {Kind.EDITED_COUNTER}},
    ),
    Doctoring(
        "n_trials of a group lowered",
        BINARY,
        in_group("oracle__binary", lambda group: group.update(n_trials=2)),
        {"result.json": {Kind.EDITED_COUNTER}},
    ),
    Doctoring(
        "tokens lowered",
        PASS_AT_K,
        in_stats(lambda stats: stats.update(n_input_tokens=1)),
        {"result.json": {Kind.EDITED_USAGE}},
    ),
    Doctoring(
        "cost lowered",
        PASS_AT_K,
        in_stats(lambda stats: stats.update(cost_usd=0.001)),
        {"result.json": {Kind.EDITED_USAGE}},
    ),
    Doctoring(
        "cost raised by one bit",
        PASS_AT_K,
        in_stats(lambda stats: stats.update(cost_usd=stats["cost_usd"] * (1 + 2**-52))),
        {"result.json": {Kind.EDITED_USAGE}},
    ),
    Doctoring(
        "a group renamed", BINARY, in_stats(rename_group), {"result.json": {Kind.EDITED_GROUP}}
    ),
    Doctoring(
        "a group removed",
        TWO_MODELS,
        in_stats(lambda stats: stats["evals"].pop(next(iter(stats["evals"])))),
        {
            "result.json": {Kind.EDITED_GROUP},
            "pass-two": {Kind.DIRECTORY_WITHOUT_TRIAL},
            "oracle-wrong": {Kind.DIRECTORY_WITHOUT_TRIAL},
            "pass-simple": {Kind.DIRECTORY_WITHOUT_TRIAL},
        },
    ),
    Doctoring(
        "evals that are no map",
        BINARY,
        in_stats(lambda stats: stats.update(evals=[])),
        {
            "result.json": {Kind.EDITED_GROUP},
            "pass-two": {Kind.DIRECTORY_WITHOUT_TRIAL},
            "oracle-wrong": {Kind.DIRECTORY_WITHOUT_TRIAL},
            "pass-simple": {Kind.DIRECTORY_WITHOUT_TRIAL},
        },
    ),
    Doctoring("a torn job result", BINARY, tear("result.json"), {"result.json": {Kind.TORN_FILE}}),
    Doctoring("a torn plan", BINARY, tear("lock.json"), {"lock.json": {Kind.TORN_FILE}}),
    Doctoring("an empty job result", BINARY, empty_result, {"result.json": {Kind.TORN_FILE}}),
    Doctoring(
        "the job result deleted", BINARY, delete_result, {"result.json": {Kind.MISSING_RESULT}}
    ),
    Doctoring(
        "a killed job said to have finished",
        KILLED,
        finish_killed_job,
        {"result.json": {Kind.EDITED_COUNTER, Kind.MISSING_TRIALS}},
    ),
    Doctoring(
        "a killed job's mean raised",
        KILLED,
        raise_mean_of_killed_job,
        {"result.json": {Kind.EDITED_COUNTER, Kind.EDITED_METRIC}},
    ),
    Doctoring(
        "lists in contradictory order",
        MULTI,
        reorder_contradictorily,
        {"result.json": {Kind.CONTRADICTED_ORDER}},
    ),
]
