"""The reward that a case file's own script derives, in a real browser: as the scoring unit does."""

import math
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page

from proctor.errors import RewardError
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.report.case.checking import check_case_file
from proctor.report.case.making import make_case
from proctor.report.case.page import parse_page
from proctor.reward.number import portable_sum
from proctor.reward.profile import PROFILES
from proctor.reward.read import parse_reward_json, parse_reward_text
from tests.cli.programs import Proctor, run_here
from tests.report.cases import make_page
from tests.report.forgeries import REWARD
from tests.report.owned import OWNED, make_owned


@pytest.fixture(scope="module")
def opened(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """An honest file, whose script is asked about other data."""
    path = tmp_path_factory.mktemp("case") / "honest.html"
    path.write_bytes(make_page(path.parent))
    context = browser.new_context()
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator(".verdict").wait_for()
    yield page
    context.close()


ASK_EACH = """async (texts) => {
  const found = [];
  for (const text of texts) {
    const { checks } = await checkCase(text);
    found.push(checks.filter((each) => each.state === "failed").map((each) => each.title));
  }
  return found;
}"""


def test_a_sealed_reward_must_follow_from_its_files(opened: Page, tmp_path: Path) -> None:
    pages = make_owned(tmp_path)
    texts = [parse_page(page, name).data for name, page in pages.items()]
    found = dict(zip(pages, opened.evaluate(ASK_EACH, texts), strict=True))
    assert found == {owned.name: [REWARD] if owned.code else [] for owned in OWNED}


SPELLINGS = (
    *("1", " 1\r\n", "-0", "+1.", ".5e-3", "1_0", "1__0", "_1", "1_", "1e5_0", "1e999", "0x1", ""),
    *("nan", "-NaN", "+Infinity", "INF", "infinit", "1 2", "1,5", "\x001", "\ufeff1", "\u00bd"),
    *(" ", "\u22121", "pass"),
)  # fmt: skip
DOCUMENTS = (
    *("{}", "null", "1", "[]", "true", '"1"', "{", '{"reward": 1} x', "\ufeff{}", '{"a": {}}'),
    *('{"a": 1, "a": 2.0, "b": 1}', '{"reward": -0, "a": -0.0, "b": 1e5, "c": 1E400}'),
    *('{"reward": NaN, "a": -Infinity, "b": Infinity}', '{"reward": nan}', '{"reward": +1}'),
    *('{"reward": true, "a": false}', '{"reward": null}', '{"reward": [1]}', "{'reward': 1}"),
    *('{"reward": " 10.5 ", "a": "-inf", "b": "NAN"}', '{"reward": "one"}', '{"reward": ""}'),
    *('{"reward": 9007199254740993}', f'{{"a": 1{"0" * 4299}}}', f'{{"a": 1{"0" * 4300}}}'),
    *('{"reward": 01}', '{"reward": 1.}', '{"rew\\ud800ard": 1}', '{"reward": 1,}', '{"a\nb": 1}'),
)  # fmt: skip
ASK_REWARDS = """(files) => files.map(([path, text, profile]) => {
  const rewards = readRewards(path, toUtf8(text), profile);
  const spell = (value) => {
    if (typeof value === "bigint") return String(value);
    if (Object.is(value, -0)) return "-0.0";
    if (Number.isFinite(value)) return value.toExponential();
    return String(value).replace("Infinity", "inf").toLowerCase();
  };
  return Object.fromEntries([...rewards ?? []].map(([name, value]) => [name, spell(value)]));
})"""


def spell(number: int | float) -> str:
    if isinstance(number, int) or not math.isfinite(number) or str(number) == "-0.0":
        return str(number)
    digits = f"{number!r}" if "e" in f"{number!r}" else f"{Decimal(repr(number)):e}"
    mantissa, _, exponent = digits.partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent):+d}" if number else "0e+0"


def test_rewards_are_read_as_the_scoring_unit_reads_them(opened: Page, tmp_path: Path) -> None:
    files = [("reward.txt", text) for text in SPELLINGS]
    files += [("reward.json", text) for text in DOCUMENTS]
    asked = [(*file, profile) for file in files for profile in PROFILES]
    wanted: list[dict[str, str]] = []
    for path, text, profile in asked:
        parse = parse_reward_json if path.endswith("json") else parse_reward_text
        try:
            rewards = parse(text.encode(), path, PROFILES[profile])
        except (RewardError, ValueError):
            rewards = None
        wanted.append({name: spell(value) for name, value in (rewards or {}).items()})
    found = opened.evaluate(ASK_REWARDS, asked)
    assert dict(zip(asked, found, strict=True)) == dict(zip(asked, wanted, strict=True))


def test_sums_are_those_of_the_scoring_unit(opened: Page, tmp_path: Path) -> None:
    chance = random.Random(8)
    numbers = [1, 0, -3, 2**53, -(2**63), 2**64, 0.1, 1e16, -1e16, 0.5, 1e308, 1e-300, 7.25, -0.1]
    lists = [chance.choices(numbers, k=chance.randrange(1, 7)) for _ in range(400)]
    spelled = [[[str(each), isinstance(each, int)] for each in values] for values in lists]
    ask = """(lists) => lists.map((values) => {
      const read = ([text, isWhole]) => isWhole ? BigInt(text) : Number(text);
      const total = exactSum(values.map(read));
      return [String(total), typeof total === "bigint"];
    })"""
    for values, (text, is_whole) in zip(lists, opened.evaluate(ask, spelled), strict=True):
        total = portable_sum(values)
        assert is_whole == isinstance(total, int), values
        assert (int(text) if is_whole else float(text)) == total, values


@pytest.mark.parametrize("text", ["\uff11", "\u0663.5", "\u20031\u00a0"])
def test_digits_that_the_page_does_not_read_are_never_taken_for_another_number(
    opened: Page, text: str
) -> None:
    """float() reads them; `proctor check` does too, and the page refuses instead of guessing."""
    assert float(text)
    with pytest.raises(Error, match="in a way that this page does not read"):
        opened.evaluate("(text) => readRewards('reward.txt', toUtf8(text))", text)


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
STEPPED = JOBS / "10-multistep-oracle-mounted"


def hold_jobs(proctor: Proctor, opened: Page, jobs: list[Path], directory: Path) -> int:
    """Check the case file of every trial of these jobs by both ways; how many there are."""
    place = ("--ledger", directory / "ledger", "--key", directory / "key")
    assert proctor("ledger", "init", *place, "--origin", "example.org/all").code == 0
    for job in jobs:
        proctor("import", "harbor", job, "--experiment", job.name, "--killed", *place)
    texts = {}
    with OpenLedger.open(directory / "ledger") as ledger:
        checkpoint = ledger.refresh()
        for row in list_trials(ledger):
            page = make_case(ledger, row, checkpoint, largest=20_000_000).page
            path = directory / "case.html"
            path.write_bytes(page)
            assert check_case_file(str(path)).is_sound, row.trial_id
            texts[row.trial_id] = parse_page(page, row.trial_id).data
    found = opened.evaluate(ASK_EACH, list(texts.values()))
    assert dict(zip(texts, found, strict=True)) == {name: [] for name in texts}
    return len(texts)


def test_steps_that_harbor_ran_are_put_together_as_harbor_did(
    proctor: Proctor, opened: Page, tmp_path: Path
) -> None:
    assert hold_jobs(proctor, opened, [STEPPED], tmp_path) > 3


@pytest.mark.soak
def test_every_trial_that_harbor_ran_is_shown(
    proctor: Proctor, opened: Page, tmp_path: Path
) -> None:
    jobs = sorted(path for path in JOBS.iterdir() if path.is_dir())
    assert hold_jobs(proctor, opened, jobs, tmp_path) > 190
