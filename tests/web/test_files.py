"""One file of a trial: text that is only text, bytes that are only bytes, and no other file."""

import hashlib
import http.client
import resource
import tempfile
from pathlib import Path

import httpx
import pytest
from backports import zstd
from playwright.sync_api import Page, expect

from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.web.browsing import NO_TLS, serving
from tests.web.looking import PHONE, find_barriers, follow, is_too_wide
from tests.web.sealed import JOBS, PNG, copy_job, seal_files, seal_harm

JOB = "06-errors-oracle-k1"
TRIAL = f"/trials/{JOB}/good-one__XEzVDEt"


def fetch(source: DataSource, path: str) -> httpx.Response:
    with serving(make_app(source)) as address:
        return httpx.get(address + path, verify=NO_TLS, trust_env=False)


@pytest.mark.parametrize(
    ("name", "kind", "how"),
    [
        ("page.html", "text/plain; charset=utf-8", "attachment"),
        ("picture.svg", "text/plain; charset=utf-8", "attachment"),
        ("lie.png", "text/plain; charset=utf-8", "attachment"),
        ("true.png", "image/png", "inline"),
    ],
)
def test_a_file_is_sent_as_what_its_bytes_are(
    tmp_path: Path, name: str, kind: str, how: str
) -> None:
    ledger = seal_harm(tmp_path)
    sent = fetch(
        DataSource(ledger=ledger), f"/trials/experiment-001/harm/files/artifacts/{name}?raw=1"
    )
    assert sent.status_code == 200
    assert sent.headers["content-type"] == kind
    assert sent.headers["content-disposition"].startswith(f"{how}; ")
    assert sent.headers["x-content-type-options"] == "nosniff"
    assert sent.headers["content-security-policy"].startswith("sandbox")
    assert sent.content == (tmp_path / "trials" / "harm" / "artifacts" / name).read_bytes()


def test_a_file_with_a_page_in_it_is_not_opened_by_a_browser(tmp_path: Path, page: Page) -> None:
    ledger = seal_harm(tmp_path)
    with serving(make_app(DataSource(ledger=ledger))) as address:
        page.goto(address)
        with page.expect_download() as download:
            page.evaluate(
                "location.href = '/trials/experiment-001/harm/files/artifacts/page.html?raw=1'"
            )
        assert download.value.suggested_filename == "page.html"
        assert page.evaluate("window.hacked") is None


TRICKS = (
    *("../config.json", "..%2fconfig.json", "%2e%2e/%2e%2e/lock.json", "verifier/../config.json"),
    *("/etc/passwd", "%2fetc%2fpasswd", "verifier", "verifier/", "", "config.json%00", "%ff%fe"),
    *("linked.txt", "folder/secret.txt", "folder", "Config.json", "./config.json"),
)


def ask_plainly(address: str, path: str) -> tuple[int, bytes]:
    """What is answered to a path that no client has tidied up."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_only_names_that_the_trial_lists_lead_anywhere(tmp_path: Path) -> None:
    job = copy_job(tmp_path, JOB)
    trial = job / "good-one__XEzVDEt"
    (tmp_path / "secret.txt").write_text("hush")
    (trial / "linked.txt").symlink_to(tmp_path / "secret.txt")
    (trial / "folder").symlink_to(tmp_path)
    with serving(make_app(DataSource(jobs=(job,)))) as address:
        for name in TRICKS:
            status, body = ask_plainly(address, f"{TRIAL}/files/{name}?raw=1")
            assert status == 404, name
            assert b"hush" not in body


def test_a_long_text_is_shown_part_by_part_and_says_where_it_is_cut(
    tmp_path: Path, page: Page
) -> None:
    job = copy_job(tmp_path, JOB)
    lines = "".join(f"line {number}\n" for number in range(15_000))
    (job / "good-one__XEzVDEt" / "long.log").write_text(lines)
    page.set_viewport_size(PHONE)
    with serving(make_app(DataSource(jobs=(job,)))) as address:
        page.goto(f"{address}{TRIAL}/files/long.log")
        seen = ""
        for _ in range(10):
            assert not is_too_wide(page)
            seen += page.locator("main pre").inner_text().rstrip("\n") + "\n"
            if page.get_by_role("link", name="The next part", exact=True).count() == 0:
                break
            expect(page.get_by_text("Truncated")).to_be_visible()
            follow(page, page.get_by_role("link", name="The next part", exact=True))
        assert seen == lines
        assert find_barriers(page) == ""


def test_what_is_no_text_is_shown_as_bytes_and_a_picture_as_a_picture(
    tmp_path: Path, page: Page
) -> None:
    job = copy_job(tmp_path, JOB)
    (job / "good-one__XEzVDEt" / "core").write_bytes(b"\x00\x01\x7fELF" * 100)
    (job / "good-one__XEzVDEt" / "shot.png").write_bytes(PNG)
    with serving(make_app(DataSource(jobs=(job,)))) as address:
        page.goto(f"{address}{TRIAL}/files/core")
        expect(page.locator("pre.hex")).to_contain_text("00 01 7f 45 4c 46")
        page.goto(f"{address}{TRIAL}/files/shot.png")
        width = page.get_by_role("img", name="shot.png").evaluate("image => image.naturalWidth")
        assert width == 8


def test_a_sealed_file_that_was_altered_is_not_shown(tmp_path: Path) -> None:
    ledger = seal_files(tmp_path, "one", {"a.txt": b"what was sealed", "b.txt": b"another"})
    one, other = (
        ledger / "artifacts" / "sha256" / digest[:2] / f"{digest}.zst"
        for digest in (
            hashlib.sha256(text).hexdigest() for text in (b"what was sealed", b"another")
        )
    )
    one.write_bytes(other.read_bytes())
    for query in ("", "?raw=1"):
        found = fetch(DataSource(ledger=ledger), f"/trials/experiment-001/one/files/a.txt{query}")
        assert found.status_code == 500
        assert "damaged" in found.text
        assert "what was sealed" not in found.text


def test_a_sealed_file_that_unpacks_to_a_disk_full_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = seal_files(tmp_path, "one", {"a.txt": b"what was sealed"})
    digest = hashlib.sha256(b"what was sealed").hexdigest()
    stored = ledger / "artifacts" / "sha256" / digest[:2] / f"{digest}.zst"
    stored.write_bytes(zstd.compress(bytes(64 << 20)))
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, limits[1]))
    try:
        found = fetch(DataSource(ledger=ledger), "/trials/experiment-001/one/files/a.txt?raw=1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found.status_code == 500
    assert "an artifact has more bytes than were sealed" in found.text
    assert list(copies.iterdir()) == []


def test_a_large_file_goes_out_whole_in_constant_memory(tmp_path: Path) -> None:
    job = copy_job(tmp_path, JOB)
    piece = bytes(range(256)) * 4096
    expected = hashlib.sha256()
    with (job / "good-one__XEzVDEt" / "big.bin").open("wb") as file:
        for _ in range(96):
            file.write(piece)
            expected.update(piece)
    with serving(make_app(DataSource(jobs=(job,)))) as address:
        httpx.get(f"{address}{TRIAL}", verify=NO_TLS, trust_env=False)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seen = hashlib.sha256()
        url = f"{address}{TRIAL}/files/big.bin?raw=1"
        with httpx.stream("GET", url, verify=NO_TLS, trust_env=False) as sent:
            for each in sent.iter_raw(1 << 16):
                seen.update(each)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert seen.digest() == expected.digest()
    assert grown < 48 << 10  # KiB


def test_a_file_that_goes_away_meanwhile_is_no_defect(tmp_path: Path) -> None:
    job = copy_job(tmp_path, JOB)
    with serving(make_app(DataSource(jobs=(job,)))) as address:
        (job / "good-one__XEzVDEt" / "trial.log").unlink()
        found = httpx.get(f"{address}{TRIAL}/files/trial.log", verify=NO_TLS, trust_env=False)
        assert found.status_code == 404


def test_the_real_jobs_files_are_all_readable() -> None:
    trial = JOBS / JOB / "good-one__XEzVDEt"
    names = [each.relative_to(trial).as_posix() for each in trial.rglob("*") if each.is_file()]
    with serving(make_app(DataSource(jobs=(JOBS / JOB,)))) as address:
        for name in names:
            sent = httpx.get(f"{address}{TRIAL}/files/{name}?raw=1", verify=NO_TLS, trust_env=False)
            assert sent.content == (trial / name).read_bytes()
            assert (
                httpx.get(
                    f"{address}{TRIAL}/files/{name}", verify=NO_TLS, trust_env=False
                ).status_code
                == 200
            )
