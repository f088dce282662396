"""Case files in a real browser, from file://: honest ones, forged ones, hostile ones."""

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from playwright.sync_api import Browser, Page

from proctor.ledger.claims.document import render_document
from proctor.ledger.claims.proof import make_consistency
from proctor.ledger.keys import cosign, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import find_trial
from proctor.ledger.tree import Tree, consistency_path, leaf_hash, root_of, subtree_of
from proctor.report.case.making import make_case
from tests.ledger.ledgers import find_key, small
from tests.report.cases import (
    FILES,
    TRIAL,
    Data,
    drop_file,
    edit,
    make_page,
    page_of,
    redo,
    seal_case,
)
from tests.report.forgeries import FORGERIES, Forgery

DATA = Path(__file__).parent.parent / "data"
NO_ED25519 = """
const own = crypto.subtle.importKey.bind(crypto.subtle);
crypto.subtle.importKey = (form, key, kind, ...more) =>
  kind.name === "Ed25519" ? Promise.reject(new Error("no")) : own(form, key, kind, ...more);
"""
VECTORS = (
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
)
"""Tests 1 to 3 of RFC 8032, 7.1: public key, message, signature."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_page(tmp_path_factory.mktemp("case"))


@pytest.fixture(scope="module")
def shared(browser: Browser) -> Iterator[Page]:
    """One page for all that only look."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def open_file(page: Page, path: Path, data: bytes) -> None:
    """Open a case file, and wait until it has said something."""
    path.write_bytes(data)
    page.goto(path.as_uri())
    page.locator(".verdict").wait_for()


def failed_in(page: Page) -> set[str]:
    """The titles of the checks that failed."""
    return set(page.locator(".checks li:has(.tag.bad) b").all_text_contents())


def verdict_of(page: Page) -> str:
    return page.locator(".verdict").inner_text()


def test_an_honest_file_passes_every_check(shared: Page, honest: bytes, tmp_path: Path) -> None:
    open_file(shared, tmp_path / "case.html", honest)
    assert verdict_of(shared).startswith("8 checks passed, none failed; 1 could not be run.")
    assert shared.locator(".score").inner_text() == "Reward 1.0"
    assert "verifier/reward.txt holds" in shared.locator(".checks").inner_text()
    assert "reward-seeded" in shared.locator("main").inner_text()
    assert shared.title() == "experiment-001/trial-007 · proctor case file"


def test_the_page_follows_changes_of_the_key_to_their_places(shared: Page, tmp_path: Path) -> None:
    directory, key = small(tmp_path, "t1", "t2"), find_key(tmp_path)
    for name in ("b", "c"):
        with OpenLedger.open(directory, key=key) as ledger:
            ledger.refresh()
            key = make_key(tmp_path / name, f"example.org/{name}")
            ledger.change_key(key)
    with OpenLedger.open(directory) as ledger:
        checkpoint = ledger.refresh()
        made = make_case(ledger, find_trial(ledger, "t1"), checkpoint, largest=10_000_000).page
    open_file(shared, tmp_path / "case.html", made)
    # The trial has no reward file: what it scored cannot be shown.
    assert failed_in(shared) == {"The reward follows from the reward file"}

    def move(data: Data) -> None:
        line = json.loads(data["entries"][-1]["line"])
        data["entries"][-1]["line"] = json.dumps({**line, "root": "0" * 64})

    open_file(shared, tmp_path / "case.html", edit(made, move))
    assert "The ledger's key signed the checkpoint" in failed_in(shared)


SEEN = [forgery for forgery in FORGERIES if forgery.shown is not None]


@pytest.mark.parametrize("forgery", SEEN, ids=lambda forgery: forgery.name)
def test_a_forgery_is_seen_by_the_page(
    shared: Page, honest: bytes, forgery: Forgery, tmp_path: Path
) -> None:
    open_file(shared, tmp_path / "case.html", forgery.forge(honest))
    assert forgery.shown in failed_in(shared)
    assert "FAILED: do not rely on" in verdict_of(shared)


def test_a_page_cannot_see_that_its_own_script_was_replaced(
    shared: Page, honest: bytes, tmp_path: Path
) -> None:
    """That is what `proctor check` is for; the documents say so."""
    lie = next(each for each in FORGERIES if each.shown is None)
    open_file(shared, tmp_path / "case.html", lie.forge(honest))
    assert verdict_of(shared) == "9 checks passed, none failed."


@pytest.mark.parametrize("part", [0.05, 0.5, 0.95])
def test_a_page_that_was_cut_never_says_that_it_was_checked(
    page: Page, honest: bytes, tmp_path: Path, part: float
) -> None:
    path = tmp_path / "case.html"
    path.write_bytes(honest[: int(len(honest) * part)])
    page.goto(path.as_uri())
    assert page.locator(".verdict").count() == 0
    assert "Nothing below has been verified" in page.locator("body").inner_text() or part < 0.1


def test_without_script_the_score_the_pins_and_the_first_steps_are_there(
    browser: Browser, honest: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "case.html"
    path.write_bytes(honest)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    text = page.locator("main").inner_text()
    context.close()
    for words in ("Nothing below has been verified", "Image", "Root hash", "step 1 tool_call bash"):
        assert words in text
    assert text.index("Reward") < text.index("Task revision")


def test_ed25519_without_the_browsers_own_gives_the_same(
    browser: Browser, honest: bytes, tmp_path: Path
) -> None:
    context = browser.new_context()
    context.add_init_script(NO_ED25519)
    page = context.new_page()
    open_file(page, tmp_path / "case.html", honest)
    assert failed_in(page) == set()
    forged = next(each for each in FORGERIES if each.name == "the checkpoint's signature")
    open_file(page, tmp_path / "forged.html", forged.forge(honest))
    assert "The ledger's key signed the checkpoint" in failed_in(page)
    context.close()


def test_ed25519_by_numbers_knows_right_from_wrong(
    shared: Page, honest: bytes, tmp_path: Path
) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    made = [
        (key.public_key().public_bytes_raw().hex(), message.hex(), key.sign(message).hex())
        for message in (b"", b"a", bytes(200))
    ]
    wrong = [(made[1][0], made[0][1], made[1][2]), (VECTORS[0][0], VECTORS[1][1], VECTORS[1][2])]
    wrong += [("ff" * 32, "", made[0][2]), (made[0][0], "", made[0][2][:64] + "ff" * 32)]
    open_file(shared, tmp_path / "case.html", honest)
    ask = """async (cases) => Promise.all(cases.map(async ([key, message, signature]) =>
        isSignedByNumbers(fromHex(key), fromHex(message), fromHex(signature))))"""
    assert shared.evaluate(ask, [*VECTORS, *made]) == [True] * 6
    assert shared.evaluate(ask, wrong) == [False] * 4


def test_consistency_proofs_are_followed_as_python_follows_them(
    shared: Page, honest: bytes, tmp_path: Path
) -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(13)]
    trees = [Tree(size, root_of(leaves[:size])) for size in range(14)]
    cases = [
        [older, trees[older].root.hex(), newer, trees[newer].root.hex(),
         [node.hex() for node in consistency_path(subtree_of(leaves), newer, older)]]
        for newer in range(1, 14) for older in range(1, newer + 1)
    ]  # fmt: skip
    open_file(shared, tmp_path / "case.html", honest)
    ask = """async (cases) => Promise.all(cases.map(
        ([older, first, newer, second, path]) => checkConsistency(
            {size: older, root: fromHex(first)}, {size: newer, root: fromHex(second)},
            path.map(fromHex)
        ).then(() => true, () => false)))"""
    assert all(shared.evaluate(ask, cases))
    for case in cases:
        case[1] = trees[0].root.hex()
    assert not any(shared.evaluate(ask, cases))


def compare(page: Page, text: str) -> str:
    """What the page says of something that was pasted."""
    page.locator("textarea").fill(text)
    page.get_by_role("button", name="Compare").click()
    answer = page.locator("section:has(textarea) p")
    answer.locator(".tag").wait_for()
    said = answer.inner_text()
    page.evaluate("document.querySelector('section:has(textarea) p').replaceChildren()")
    return said


def test_what_came_by_another_way_is_compared(page: Page, tmp_path: Path) -> None:
    witness = make_key(tmp_path / "witness", "example.org/witness")
    with seal_case(tmp_path) as ledger:
        older = ledger.refresh()
        ledger.note("more", author="ana")
        newest = cosign(ledger.refresh(), witness, 1_700_000_000)
        grown = render_document(make_consistency(ledger, older, newest)).decode()
        data = make_case(ledger, ledger.find(TRIAL), newest, largest=2_000_000).page
        record = ledger.find(TRIAL).record
    (tmp_path / "other").mkdir()
    stranger = find_key(tmp_path / "other").verifier
    open_file(page, tmp_path / "case.html", data)
    assert compare(page, str(find_key(tmp_path).verifier)).startswith("same")
    assert "cosigned the checkpoint of this case, at 2023-11-14" in compare(
        page, str(witness.cosigner)
    )
    assert compare(page, str(stranger)).startswith("DIFFERENT")
    assert compare(page, newest.render().decode()).startswith("same")
    assert "paste the consistency proof" in compare(page, older.render().decode())
    assert "did not change" in compare(page, grown)
    assert compare(page, newest.tree.root.hex()).startswith("same")
    assert compare(page, base64.b64encode(newest.tree.root).decode()).startswith("same")
    assert compare(page, record).startswith("same")
    assert compare(page, "0" * 64).startswith("DIFFERENT")
    assert compare(page, "rubbish").startswith("DIFFERENT")


HOSTILE = "</script><script>window.ran=1</script><img src=x onerror=window.ran=1>\u202e\x1b[31m\x00"


def test_a_hostile_trial_runs_nothing(page: Page, tmp_path: Path) -> None:
    rows = [{"role": HOSTILE, "step": 1, "content": HOSTILE, "tool_name": HOSTILE}]
    rows += [{"role": "tool_result", "step": 2, "stdout": HOSTILE * 2000, "exit_code": 1}]
    trace = "".join(json.dumps(row) + "\n" for row in rows).encode() + b'{"torn": "\xff\n'
    files = {**FILES, "agent/trajectory.jsonl": trace, "verifier/test-stdout.txt": HOSTILE.encode()}
    made = make_page(tmp_path, files, **{"inputs.instruction": HOSTILE, "agent.model": "<b>m</b>"})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_file(page, tmp_path / "case.html", made)
    assert failed_in(page) == set()
    page.get_by_role("button", name="Unfold").click()
    for summary in page.locator(".file > summary").all():
        summary.click()
    assert page.evaluate("window.ran") is None
    assert [url for url in asked if not url.startswith("file:")] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("li.failed").count() == 2


TRACES = sorted(
    path
    for pattern in ("conversations/*.jsonl", "atif/every*.json", "looking/*.jsonl")
    for path in DATA.glob(pattern)
)


@pytest.mark.parametrize("source", TRACES, ids=lambda path: path.name)
def test_traces_of_every_kind_are_read_as_python_reads_them(
    shared: Page, tmp_path: Path, source: Path
) -> None:
    is_lines = source.suffix == ".jsonl"
    kind = "trajectory" if "looking" in source.parts or not is_lines else "conversation"
    data = make_page(tmp_path, {f"agent/{kind}{source.suffix}": source.read_bytes()})
    open_file(shared, tmp_path / "case.html", data)
    assert "The page says what its data says" not in failed_in(shared)
    assert shared.locator(".entries > li").count() > 1


def test_a_long_trace_is_usable(page: Page, tmp_path: Path) -> None:
    rows = [
        {
            "role": "tool_result",
            "step": number,
            "stdout": f"line {number} " * 20,
            "exit_code": int(number == 4321),
        }
        for number in range(6000)
    ]
    trace = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = tmp_path / "case.html"
    open_file(page, path, make_page(tmp_path, {**FILES, "agent/trajectory.jsonl": trace}))
    assert page.locator(".entries > li").count() < 1000
    page.goto(f"{path.as_uri()}#step-5000")
    page.reload()
    page.locator("#step-5000 pre").first.wait_for()
    assert page.locator("#step-5000").is_visible()
    page.get_by_label("errors only").check()
    assert page.locator(".entries > li").count() == 1
    page.get_by_label("errors only").uncheck()
    page.get_by_label("Find").fill("line 777 ")
    assert page.locator(".entries > li").count() == 1
    page.get_by_label("Find").fill("")
    page.locator("h1").click()
    page.keyboard.press("n")
    assert page.locator("#step-4321 details").first.get_attribute("open") is not None


def test_what_was_left_out_is_told_as_not_checked(
    shared: Page, honest: bytes, tmp_path: Path
) -> None:
    forged = redo(honest, drop_file("verifier/test-stdout.txt", "size"))
    open_file(shared, tmp_path / "case.html", forged)
    assert verdict_of(shared).startswith("7 checks passed, none failed; 2 could not be run.")
    assert (
        "verifier/test-stdout.txt (too large to be embedded)"
        in shared.locator(".checks").inner_text()
    )


def test_withheld_evidence_is_told_as_withheld(shared: Page, tmp_path: Path) -> None:
    with seal_case(tmp_path) as ledger:
        row = ledger.find(TRIAL)
        ledger.withhold(row, reason="a key", author="ana", evidence=["result.json"])
        data = page_of(ledger)
    open_file(shared, tmp_path / "case.html", data)
    assert failed_in(shared) == set()
    assert "result.json (withheld)" in shared.locator(".checks").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(
    browser: Browser, honest: bytes, tmp_path: Path, scheme: str
) -> None:
    context = browser.new_context(color_scheme="light" if scheme == "light" else "dark")
    page = context.new_page()
    open_file(page, tmp_path / "case.html", honest)
    page.get_by_role("button", name="Unfold").click()
    found = Axe().run(page)
    context.close()
    assert found.response["violations"] == []


@pytest.mark.soak
def test_a_file_of_15_megabytes_opens(page: Page, tmp_path: Path) -> None:
    chance = random.Random(8)
    rows = [
        {"role": "assistant", "step": number, "content": chance.randbytes(300).hex()}
        for number in range(35_000)
    ]
    trace = "".join(json.dumps(row) + "\n" for row in rows).encode()
    made = make_page(tmp_path, {**FILES, "agent/trajectory.jsonl": trace})
    assert 12_000_000 < len(made) < 20_000_000
    open_file(page, tmp_path / "case.html", made)
    assert failed_in(page) == set()
    page.get_by_label("Step").fill("34000")
    page.get_by_label("Step").press("Enter")
    page.locator("#step-34000 pre").first.wait_for()
