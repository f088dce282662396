"""Prices come from the table that was installed, by whole names, offline.

Amounts are of models whose prices are history; the day of the trial decides which price counts.
"""

import hashlib
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import genai_prices
import pytest
from genai_prices import data, data_snapshot

from proctor.record.cost import CostBasis, Spending, Usage, find_cost
from tests.cli.programs import environment

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
SONNET = "anthropic/claude-sonnet-4-20250514"
CACHED = Usage(input=16_000, output=0, cache_read=10_000, cache_write=5000)


def estimate(usage: Usage, model: str | None = SONNET, *, is_per_call: bool = False) -> CostBasis:
    return find_cost([Spending(usages=(usage,), model=model, is_per_call=is_per_call)], DAY)


def test_cached_tokens_are_priced_once() -> None:
    basis = estimate(CACHED)
    assert basis.amount_usd == 0.02475
    assert basis.notes == ()


def test_an_estimate_says_which_table_made_it() -> None:
    basis = estimate(CACHED)
    table = Path(data.__file__).read_bytes()
    assert (basis.kind, basis.price_source) == ("estimated", "genai-prices")
    assert basis.price_version == genai_prices.__version__
    assert basis.price_table_sha256 == hashlib.sha256(table).hexdigest()
    assert basis.price_date == "2026-03-01"
    (matched,) = basis.matched
    assert (matched.asked, matched.provider) == (SONNET, "anthropic")


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("o3", "openai", "o3"),
        ("openai/gpt-4.1", "openai", "gpt-4.1"),
        ("OpenAI/GPT-4.1-mini-2025-04-14", "openai", "gpt-4.1-mini"),
        ("anthropic:claude-opus-4-5", "anthropic", "claude-opus-4-5"),
        ("claude-3-5-haiku", "anthropic", "claude-3-5-haiku-latest"),
        ("o3-pro", "openai", "o3-pro"),
        ("openrouter/anthropic/claude-sonnet-4.5", "openrouter", "anthropic/claude-sonnet-4.5"),
        ("gemini/gemini-2.5-pro-preview-05-06", "google", "gemini-2.5-pro"),
        ("vertex_ai/claude-sonnet-4-5@20250929", "google", "claude-sonnet-4-5"),
        (
            "bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0",
            "aws",
            "regional.anthropic.claude-sonnet-4-20250514-v1:0",
        ),
    ],
)
def test_whole_names_find_their_price(name: str, provider: str, model: str) -> None:
    (matched,) = estimate(CACHED, name).matched
    assert (matched.provider, matched.model) == (provider, model)


@pytest.mark.parametrize(
    "name",
    [
        "foo3",
        "openai/foo3",
        "gpt-4o-foo",
        "my-claude-sonnet-4-20250514",
        "claude-sonnet-4-20250514-finetuned",
        "notopenai/gpt-4o",
        "anthropic/gpt-4o",
        "Qwen/Qwen3-32B",
        "hosted_vllm/claude-sonnet-4-20250514",
        "",
        "/",
        "openai/",
        "\ud800",
    ],
)
def test_parts_of_names_find_none(name: str) -> None:
    basis = estimate(CACHED, name)
    assert (basis.kind, basis.amount_usd) == ("unknown", None)
    assert basis.why_unknown


@pytest.mark.parametrize(
    ("usage", "model", "why"),
    [
        (CACHED, None, "the agent's model is not known"),
        (Usage(output=3), SONNET, "the agent's input tokens are not known"),
        (Usage(input=3), SONNET, "the agent's output tokens are not known"),
        (Usage(input=3, output=3), "openai/text-embedding-3-small", "no listed price for output"),
        (Usage(input=3, output=3), "github-copilot/gpt-4o", "no listed price for input"),
        (Usage(input=10**400, output=0), SONNET, "too large to be priced"),
        (Usage(input=0, output=0), SONNET, "no tokens were counted"),
    ],
)
def test_what_cannot_be_priced_is_unknown(usage: Usage, model: str | None, why: str) -> None:
    basis = estimate(usage, model)
    assert (basis.kind, basis.amount_usd) == ("unknown", None)
    assert why in (basis.why_unknown or "")


def test_unreported_cache_reads_are_noted() -> None:
    assert "cache reads are not known" in estimate(Usage(input=1000, output=0)).notes[0]


@pytest.mark.parametrize(
    ("model", "usage", "expected"),
    [
        (SONNET, Usage(input=1000, output=0, cache_read=0), ["low"]),
        (SONNET, Usage(input=1000, output=0, cache_read=0, cache_write=0), []),
        ("openai/gpt-4.1", Usage(input=1000, output=0, cache_read=0), []),
    ],
)
@pytest.mark.parametrize("is_per_call", [True, False])
def test_unreported_cache_writes_are_noted_where_they_have_a_price(
    model: str, usage: Usage, expected: list[str], is_per_call: bool
) -> None:
    notes = estimate(usage, model, is_per_call=is_per_call).notes
    assert [note.rpartition(" ")[2] for note in notes] == expected
    assert all("cache writes are not known" in note for note in notes)


def test_a_price_by_size_of_call_is_not_applied_to_a_trials_sum() -> None:
    half = Usage(input=150_000, output=10, cache_read=0)
    whole = Usage(input=300_000, output=20, cache_read=0)
    model = "gemini/gemini-2.5-pro"
    calls = find_cost([Spending(usages=(half, half), model=model, is_per_call=True)], DAY)
    summed = estimate(whole, model)
    assert summed.amount_usd == calls.amount_usd
    assert calls.notes == ()
    assert "those above 200,000 input tokens cost more than was counted" in summed.notes[0]
    one_call = estimate(whole, model, is_per_call=True)
    assert one_call.amount_usd is not None
    assert summed.amount_usd is not None
    assert one_call.amount_usd > summed.amount_usd


def test_the_advisor_is_priced_by_its_own_model_or_left_out_with_a_note() -> None:
    agent = Spending(usages=(CACHED,), model=SONNET)
    asked = Usage(input=1000, output=1000, cache_read=0)
    advisor = Spending(usages=(asked,), model="openai/gpt-4.1", who="advisor")
    both = find_cost([agent, advisor], DAY)
    assert both.amount_usd == pytest.approx(0.02475 + 0.01)
    assert [matched.provider for matched in both.matched] == ["anthropic", "openai"]
    nameless = Spending(usages=(asked,), model=None, who="advisor")
    known = find_cost([agent, nameless], DAY)
    assert (known.kind, known.amount_usd) == ("estimated", 0.02475)
    assert known.notes[-1] == (
        "the advisor's part is not in the amount: the advisor's model is not known"
    )
    unpriced = Spending(usages=(CACHED,), model=None)
    assert find_cost([unpriced, advisor], DAY).why_unknown == "the agent's model is not known"
    unused = Spending(usages=(Usage(input=0, output=0),), model=None, who="advisor")
    assert find_cost([agent, unused], DAY).amount_usd == 0.02475


def test_nobody_elses_table_and_no_network_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    empty = data_snapshot.DataSnapshot(providers=[], from_auto_update=True)
    monkeypatch.setattr(data_snapshot, "_custom_snapshot", empty)
    assert estimate(CACHED).amount_usd == 0.02475


def test_prices_are_loaded_when_one_is_asked_for() -> None:
    program = "import sys, proctor.record.read, proctor.record.cost; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, check=True
    )
    assert b"proctor.record.cost" in done.stdout
    assert b"genai_prices" not in done.stdout


def test_a_time_without_an_offset_counts_as_utc() -> None:
    naive = DAY.replace(tzinfo=None)
    assert find_cost([Spending(usages=(CACHED,), model=SONNET)], naive) == estimate(CACHED)
