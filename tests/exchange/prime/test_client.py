"""Prime's interface asked over HTTP: what is tried again, what is not, and what is said."""

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proctor.errors import PrimeError
from proctor.exchange.prime.client import (
    Access,
    Limits,
    Pace,
    ask_evaluation,
    find_access,
    list_samples,
    open_client,
)
from tests.exchange.prime.samples import small
from tests.exchange.prime.server import (
    KEY,
    PageModel,
    Prime,
    Reply,
    at_most_ten,
    bare,
    breaks_off,
    drips,
    endless,
    floods,
    hangs_up,
    has_more,
    never_answers,
    refuses,
    says,
    sends_to,
    serving,
    total_pages,
)


@dataclass
class Asker:
    """Asks one server, and remembers what was waited and told."""

    server: Prime
    limits: Limits = field(default_factory=Limits)
    key: str = KEY
    waits: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def names(self, page_size: int = 10) -> list[str]:
        """The samples of the evaluation."""
        access = Access(f"{self.server.url}/api/v1", self.key, "PRIME_API_KEY")
        pace = Pace(sleep=self.waits.append, chance=lambda: 1.0)
        with open_client(access, self.limits, self.told.append, pace) as client:
            evaluation = ask_evaluation(client, "ev1")
            listing = list_samples(client, "ev1", evaluation, page_size)
            names = [each.name for each in listing]
            if listing.failure is not None:
                raise listing.failure
        return names


def ask_with(*faults: Reply, page: int = 0, limits: Limits | None = None) -> Asker:
    """What comes of faults before the true answer."""
    with serving([small(number) for number in range(25)]) as server:
        server.faults[page] = list(faults)
        asker = Asker(server, limits or Limits())
        assert asker.names() == [f"s{number}" for number in range(25)]
        assert server.faults[page] == []
    return asker


def refusal(*faults: Reply, page: int = 0, limits: Limits | None = None, key: str = KEY) -> str:
    """The sentence that faults end in."""
    with serving([small(1)]) as server:
        server.faults[page] = list(faults)
        with pytest.raises(PrimeError) as raised:
            Asker(server, limits or Limits(), key).names()
        return str(raised.value).replace(server.url, "URL")


@pytest.mark.parametrize("model", [has_more, total_pages, bare, at_most_ten])
def test_every_model_of_pages_is_read_to_its_end(model: PageModel) -> None:
    with serving([small(number) for number in range(25)], model) as server:
        assert Asker(server).names(25) == [f"s{number}" for number in range(25)]
        assert server.asked[0] == "/api/v1/evaluations/ev1"
        assert server.asked[1] == "/api/v1/evaluations/ev1/samples?page=1&limit=25"


def test_a_server_without_an_end_is_left() -> None:
    with serving([small(number) for number in range(10)], endless) as server:
        assert len(Asker(server).names()) == 10


@pytest.mark.parametrize(
    "fault", [hangs_up, breaks_off, refuses(500, "x"), refuses(502, "x"), refuses(408, "x")]
)
@pytest.mark.parametrize("page", [0, 2])
def test_what_may_pass_is_tried_again_after_longer_and_longer(fault: Reply, page: int) -> None:
    asker = ask_with(fault, fault, fault, page=page)
    assert asker.waits == [1.0, 2.0, 4.0]
    assert "trying again in 2.0s (2 of 5)" in asker.told[1]


def test_a_rate_limit_is_waited_for_as_long_as_it_says_and_no_longer_than_five_minutes() -> None:
    asker = ask_with(
        refuses(429, "slow down", retry_after="7"),
        refuses(429, "slow down", retry_after="86400"),
        refuses(429, "slow down"),
        page=2,
    )
    assert asker.waits == [7.0, 300.0, 4.0]
    assert "HTTP 429: slow down; trying again in 7.0s (1 of 5)" in asker.told[0]


def test_what_does_not_pass_ends_in_a_sentence_that_says_how_often_it_was_asked() -> None:
    limits = Limits(retries=2)
    assert refusal(*[refuses(503, "down")] * 3, limits=limits) == (
        "URL/api/v1/evaluations/ev1: HTTP 503: down (tried 3 times)"
    )


@pytest.mark.parametrize("reply", [never_answers, drips])
def test_an_answer_that_does_not_come_in_time_is_given_up(reply: Reply) -> None:
    limits = Limits(timeout_sec=0.2, retries=1)
    assert refusal(reply, reply, limits=limits) == (
        "URL/api/v1/evaluations/ev1: no complete response after 0.2 s (--timeout) (tried 2 times)"
    )


def test_an_answer_without_an_end_is_not_read_to_it() -> None:
    limits = Limits(largest=1 << 20)
    assert refusal(floods, page=1, limits=limits) == (
        "URL/api/v1/evaluations/ev1/samples: the response has more than 1,048,576 bytes; "
        "request fewer with --page-size"
    )


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_taken_is_named_by_where_it_is_from(status: int) -> None:
    assert refusal(refuses(status, "expired")) == (
        f"URL/api/v1/evaluations/ev1: HTTP {status}: expired; is the key of PRIME_API_KEY still "
        "valid, and may it read this evaluation? Set PRIME_API_KEY to one that may"
    )


def test_a_wrong_key_is_refused_and_never_shown() -> None:
    said = refusal(refuses(401, "no such key: another-secret-key"), key="another-secret-key")
    assert "HTTP 401: no such key: [redacted]" in said
    assert "another-secret-key" not in said


def test_an_evaluation_that_is_not_there_is_said_to_be_none() -> None:
    assert refusal(refuses(404, "Not found")) == (
        "URL/api/v1/evaluations/ev1: there is no evaluation 'ev1', or none that the key of "
        "PRIME_API_KEY may read; see `prime eval list`"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>Sign in</html>", "it begins with '<html>Sign in</html>'; is the URL right?"),
        (b"[1]", "the response is '[1]'; expected an object"),
        (b"null", "the response is 'null'; expected an object"),
    ],
)
def test_an_answer_that_is_no_object_is_not_asked_for_again(body: bytes, said: str) -> None:
    assert refusal(says(body)).endswith(said)


def test_a_torn_answer_is_asked_for_again() -> None:
    assert ask_with(says(b'{"samples": ['), page=2).waits == [1.0]


def test_a_packed_answer_is_not_unpacked() -> None:
    said = refusal(says(b"x", {"content-encoding": "gzip"}))
    assert said.endswith("the response is compressed (gzip); expected it uncompressed")


def test_the_key_goes_to_no_other_place() -> None:
    with serving([small(1)]) as other:
        said = refusal(sends_to(f"{other.url}/api/v1/evaluations/ev1"))
        assert said.endswith(
            f"it redirects to {other.url}, where the key is not sent; pass that as --base-url, "
            "if it is trusted"
        )
        assert other.asked == []


def test_a_redirect_within_the_place_is_followed_and_a_circle_is_left() -> None:
    ask_with(sends_to("/api/v1/evaluations/ev1"))
    circle = [sends_to("/api/v1/evaluations/ev1")] * 9
    assert refusal(*circle).endswith("it redirects more than 5 times")


def test_where_nobody_listens_there_is_no_connection() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        access = Access(f"http://127.0.0.1:{free.getsockname()[1]}/api/v1", KEY, "PRIME_API_KEY")
        pace = Pace(sleep=lambda _: None)
        with (
            open_client(access, Limits(retries=1), lambda _: None, pace) as client,
            pytest.raises(PrimeError, match="no connection: Connection refused; is the network up"),
        ):
            ask_evaluation(client, "ev1")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "https://x/ev1", "a?b", "é"])
def test_an_id_that_is_none_is_not_asked_for(name: str) -> None:
    access = Access("http://127.0.0.1:1/api/v1", KEY, "PRIME_API_KEY")
    with (
        open_client(access, Limits(), lambda _: None) as client,
        pytest.raises(PrimeError, match="expected the id of an evaluation"),
    ):
        ask_evaluation(client, name)


# Where the interface is, and the key


@pytest.fixture
def home(tmp_path: Path) -> Callable[[object], Path]:
    """A home directory with a file of Prime's."""

    def make(config: object) -> Path:
        (tmp_path / ".prime").mkdir()
        text = config if isinstance(config, str) else json.dumps(config)
        (tmp_path / ".prime" / "config.json").write_text(text)
        return tmp_path

    return make


def test_variables_go_before_the_file_and_the_option_before_all(
    home: Callable[[object], Path],
) -> None:
    place = home({"api_key": "k-file", "base_url": "https://file.example/api/v1/", "team_id": None})
    found = find_access(None, {}, place)
    assert (found.url, found.key) == ("https://file.example/api/v1", "k-file")
    assert found.key_from == str(place / ".prime" / "config.json")
    variables = {"PRIME_API_KEY": "k-env", "PRIME_BASE_URL": "https://b.example"}
    found = find_access(None, variables, place)
    assert (found.url, found.key, found.key_from) == (
        "https://b.example/api/v1",
        "k-env",
        "PRIME_API_KEY",
    )
    variables["PRIME_API_BASE_URL"] = "https://a.example/"
    assert find_access(None, variables, place).url == "https://a.example/api/v1"
    assert find_access("http://127.0.0.1:8", variables, place).url == "http://127.0.0.1:8/api/v1"
    assert "k-env" not in repr(found)


def test_without_a_key_it_is_said_which_variable_wants_it(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match=r"PRIME_API_KEY is not set, and .*config.json has none"):
        find_access(None, {"PRIME_API_KEY": " "}, tmp_path)


@pytest.mark.parametrize(
    "url", ["ftp://x", "x", "https://", "https://u:p@x", "https://x?a=b", "https://x:port", "h ttp"]
)
def test_a_url_that_is_none_is_refused_and_no_password_shown(url: str, tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match=r"--base-url is .*; expected a URL such as") as raised:
        find_access(url, {"PRIME_API_KEY": "k"}, tmp_path)
    assert "u:p" not in str(raised.value)


def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match="blanks or characters beyond ASCII") as raised:
        find_access(None, {"PRIME_API_KEY": "se cret"}, tmp_path)
    assert "cret" not in str(raised.value)


def test_a_broken_file_of_primes_is_named(home: Callable[[object], Path]) -> None:
    with pytest.raises(PrimeError, match="not in the format of `prime login`"):
        find_access(None, {}, home("{"))
