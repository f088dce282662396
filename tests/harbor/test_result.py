"""A whole result.json, as harbor writes it at the end and in between."""

from datetime import UTC, datetime

import pytest

from proctor.harbor.stats import JobResult, JobStats, render_result

STARTED = datetime(2025, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - harbor's local times have no zone
FINISHED = datetime(2025, 1, 2, 3, 5, 6)  # noqa: DTZ001


def result(updated: datetime | None, finished: datetime | None) -> JobResult:
    return JobResult("0-7", STARTED, updated, finished, 3, JobStats(n_pending_trials=3))


def head(rendered: str) -> list[str]:
    return rendered.split('"stats"')[0].splitlines()


def test_a_finished_result_has_local_times_and_no_final_newline() -> None:
    rendered = render_result(result(FINISHED, FINISHED))
    assert rendered == (
        "{\n"
        '    "id": "0-7",\n'
        '    "started_at": "2025-01-02T03:04:05.678901",\n'
        '    "updated_at": "2025-01-02T03:05:06",\n'
        '    "finished_at": "2025-01-02T03:05:06",\n'
        '    "n_total_trials": 3,\n'
        '    "stats": {\n'
        '        "n_completed_trials": 0,\n'
        '        "n_errored_trials": 0,\n'
        '        "n_running_trials": 0,\n'
        '        "n_pending_trials": 3,\n'
        '        "n_cancelled_trials": 0,\n'
        '        "n_retries": 0,\n'
        '        "evals": {},\n'
        '        "n_input_tokens": null,\n'
        '        "n_cache_tokens": null,\n'
        '        "n_output_tokens": null,\n'
        '        "cost_usd": null\n'
        "    }\n"
        "}"
    )


@pytest.mark.parametrize(
    ("updated", "text"),
    [(None, "null"), (datetime(2025, 1, 2, 1, tzinfo=UTC), '"2025-01-02T01:00:00Z"')],
)
def test_a_running_result_has_no_end_and_was_updated_in_utc(
    updated: datetime | None, text: str
) -> None:
    assert head(render_result(result(updated, None)))[3:5] == [
        f'    "updated_at": {text},',
        '    "finished_at": null,',
    ]
