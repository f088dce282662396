"""Prime's interface asked over HTTP: what is tried again, what is not, and which samples come."""

import json
import random
import time
from pathlib import Path

import pytest

from proctor.errors import PrimeError
from proctor.exchange.prime.service import ask_evaluation, open_client
from tests.exchange.prime.samples import small
from tests.exchange.prime.server import (
    KEY,
    PageModel,
    Prime,
    Reply,
    bare,
    breaks_off,
    endless,
    hangs_up,
    has_more,
    refuses,
    says,
    sends_to,
    serving,
)

PATH = "URL/api/v1/evaluations/ev1"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was waited, in no time."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(random, "random", lambda: 1.0)
    return found


def names(server: Prime, told: list[str] | None = None, key: str = KEY) -> list[str]:
    """The samples of the evaluation."""
    variables = {"PRIME_API_BASE_URL": server.url, "PRIME_API_KEY": key}
    log = [] if told is None else told
    with open_client(variables, Path("/nowhere"), log.append) as client:
        _, samples = ask_evaluation(client, "ev1")
        return [name for name, _ in samples]


def refusal(*faults: Reply, page: int = 0, key: str = KEY) -> str:
    """The sentence that faults end in."""
    with serving([small(1)]) as server:
        server.faults[page] = list(faults)
        with pytest.raises(PrimeError) as raised:
            names(server, key=key)
        return str(raised.value).replace(server.url, "URL")


@pytest.mark.parametrize("model", [has_more, bare])
@pytest.mark.parametrize("n", [1, 100, 250])
def test_every_page_is_read_to_the_end(model: PageModel, n: int) -> None:
    with serving([small(number) for number in range(n)], model) as server:
        assert names(server) == [f"s{number}" for number in range(n)]
        assert server.asked[0] == "/api/v1/evaluations/ev1"
        assert server.asked[1] == "/api/v1/evaluations/ev1/samples?page=1&limit=100"


def test_a_server_without_an_end_is_left() -> None:
    with serving([small(number) for number in range(10)], endless) as server:
        # The second page, which repeats the first, brings nothing.
        assert names(server) == [f"s{number}" for number in range(10)]
        assert len(server.asked) == 3


def test_without_ids_samples_are_counted() -> None:
    samples = [{"reward": 1}, "x", {"sample_id": 7}, {"id": "y"}, {"reward": 0}]
    with serving(samples) as server:
        assert names(server) == ["sample-1", "sample-2", "7", "y", "sample-5"]


@pytest.mark.parametrize(
    "fault", [hangs_up, breaks_off, refuses(500, "x"), refuses(502, "x"), refuses(408, "x")]
)
@pytest.mark.parametrize("page", [0, 2])
def test_what_may_pass_is_tried_again_after_longer_and_longer(
    waits: list[float], fault: Reply, page: int
) -> None:
    told: list[str] = []
    with serving([small(number) for number in range(150)]) as server:
        server.faults[page] = [fault, fault, fault]
        assert len(names(server, told)) == 150
    assert waits == [1.0, 2.0, 4.0]
    assert "trying again in 2.0s (2 of 5)" in told[1]


def test_a_rate_limit_is_waited_for_as_long_as_it_says_and_no_longer_than_five_minutes(
    waits: list[float],
) -> None:
    with serving([small(1)]) as server:
        server.faults[0] = [
            refuses(429, "slow down", retry_after="7"),
            refuses(429, "slow down", retry_after="86400"),
            refuses(429, "slow down"),
        ]
        assert names(server) == ["s1"]
    assert waits == [7.0, 300.0, 4.0]


def test_what_does_not_pass_ends_in_a_sentence_that_says_how_often_it_was_asked(
    waits: list[float],
) -> None:
    assert refusal(*[refuses(503, "down")] * 6) == f"{PATH}: HTTP 503: down (tried 6 times)"
    assert len(waits) == 5


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_taken_is_named_by_where_it_is_from(status: int) -> None:
    assert refusal(refuses(status, "expired")) == (
        f"{PATH}: HTTP {status}: expired; may the key of PRIME_API_KEY read this? Set PRIME_API_KEY"
    )


def test_a_wrong_key_is_refused_and_never_shown() -> None:
    said = refusal(refuses(401, "no such key: another-secret-key"), key="another-secret-key")
    assert "HTTP 401: no such key: [redacted]" in said
    assert "another-secret-key" not in said


def test_an_evaluation_that_is_not_there_is_said_to_be_none() -> None:
    assert refusal(refuses(404, "Not found")) == (
        f"{PATH}: there is no evaluation 'ev1', or none that the key of PRIME_API_KEY may read; "
        "see `prime eval list`"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>Sign in</html>", "not JSON: .*; it begins with '<html>Sign in</html>'"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"evaluation_id": 7}', r"Expected `str`, got `int` - at `\$.evaluation_id`"),
    ],
)
def test_an_answer_that_is_no_evaluation_is_named_with_its_path(body: bytes, said: str) -> None:
    with serving([]) as server:
        server.faults[0] = [says(body)]
        with pytest.raises(PrimeError, match=rf"/api/v1/evaluations/ev1: {said}"):
            names(server)


@pytest.mark.parametrize(
    "page", [b"[]", b"{}", b'{"samples": {}}', b'{"samples": [], "total": "x"}']
)
def test_an_answer_that_is_no_page_is_named_with_its_path(page: bytes) -> None:
    assert f"{PATH}/samples: page 1: " in refusal(says(page), page=1)


def test_the_key_goes_to_no_other_place() -> None:
    with serving([small(1)]) as other:
        said = refusal(sends_to(f"{other.url}/api/v1/evaluations/ev1"))
        assert "HTTP 401" in said
        assert other.asked == ["/api/v1/evaluations/ev1"]


def test_where_nobody_listens_there_is_no_connection(waits: list[float]) -> None:
    with serving([]) as gone:
        pass
    with pytest.raises(PrimeError, match=r"no response: .* refused; is the network up"):
        names(gone)
    assert len(waits) == 5


def test_an_id_leads_to_no_other_path() -> None:
    with serving([small(1)]) as server:
        variables = {"PRIME_API_BASE_URL": server.url, "PRIME_API_KEY": KEY}
        with (
            open_client(variables, Path("/nowhere"), print) as client,
            pytest.raises(PrimeError, match="there is no evaluation"),
        ):
            ask_evaluation(client, "../ev1?x")
    assert server.asked == ["/api/v1/evaluations/..%2Fev1%3Fx"]


def test_variables_go_before_the_file(tmp_path: Path) -> None:
    (tmp_path / ".prime").mkdir()
    file = tmp_path / ".prime" / "config.json"
    file.write_text(json.dumps({"api_key": "k-file", "base_url": "https://file.example/api/v1/"}))
    with open_client({}, tmp_path, print) as client:
        assert (client.url, client.key) == ("https://file.example/api/v1", "k-file")
        assert client.key_from == str(file)
    variables = {"PRIME_API_KEY": "k-env", "PRIME_BASE_URL": "https://b.example"}
    with open_client(variables, tmp_path, print) as client:
        assert (client.url, client.key) == ("https://b.example/api/v1", "k-env")
        assert client.key_from == "PRIME_API_KEY"
        assert "k-env" not in repr(client)
    variables["PRIME_API_BASE_URL"] = "https://a.example/"
    with open_client(variables, tmp_path, print) as client:
        assert client.url == "https://a.example/api/v1"
    file.write_text("{")
    with (
        pytest.raises(PrimeError, match=r"config.json: not JSON"),
        open_client({}, tmp_path, print),
    ):
        pass


@pytest.mark.parametrize("key", [" ", "é", "a\x01b"])
def test_without_a_key_it_is_said_which_variable_wants_it(tmp_path: Path, key: str) -> None:
    with (
        pytest.raises(PrimeError, match=r"PRIME_API_KEY is not set, or not in ASCII") as raised,
        open_client({"PRIME_API_KEY": key}, tmp_path, print),
    ):
        pass
    assert "é" not in str(raised.value)


@pytest.mark.parametrize("url", ["ftp://x", "x", "https://", "https://x:port"])
def test_a_url_that_is_none_is_not_asked_again(url: str, tmp_path: Path) -> None:
    variables = {"PRIME_API_KEY": "k", "PRIME_API_BASE_URL": url}
    with (
        pytest.raises(PrimeError, match="is the network up, and the URL right"),
        open_client(variables, tmp_path, print) as client,
    ):
        ask_evaluation(client, "ev1")
