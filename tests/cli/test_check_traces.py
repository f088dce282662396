"""`proctor check` on traces: every row of the page's table has its code and its line."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from proctor.traces.trajectory import Chunk, read_chunks
from tests.cli.programs import ROOT, Proctor, environment

GOOD = b'{"step": 1, "role": "user", "content": "x"}\n'


class Case(NamedTuple):
    """A file, and what is noticed about it: code, line, whether it is a problem."""

    met: str
    """The beginning of the row of the table."""
    data: bytes
    noticed: list[tuple[str, int, bool]]


def line(text: str) -> bytes:
    return f'{{"step": 1, "role": "user", {text}}}\n'.encode()


CASES = [
    Case("empty file", b"", []),
    Case("empty file", b"\n\n" + GOOD.replace(b"\n", b"\r\n") + b"\n", []),
    Case("header or none", b'{"version": 1, "format": "f"}\n' + GOOD, []),
    Case("header or none", b'{"version": 1, "format": "f", "timestamp": "t"}\n' + GOOD, []),
    Case("another version", b'{"version": 1, "format": "f", "x": 1}\n', [("header-key", 1, False)]),
    Case("another version", b'{"version": 2, "format": "f"}\n', [("other-version", 1, False)]),
    Case("another version", b'{"version": "1", "format": 1}\n', [("other-version", 1, False)]),
    Case("another version", GOOD + b'{"version": 1, "format": "f"}\n', [("late-header", 2, False)]),
    Case("another version", b'{"version": 1, "format": "f"}\n' * 2, [("header-again", 2, False)]),
    Case("an entry that also", line('"version": 1, "format": "f"'), [("unknown-key", 1, True)]),
    Case("U+2028", line('"content": "a\u2028b\u2029c\u0085d"'), []),
    Case("torn last line", GOOD + GOOD[:-5], [("torn-line", 2, True)]),
    Case("last line whole", GOOD + GOOD[:-1], [("no-line-end", 2, False)]),
    Case("a line that is not JSON", GOOD + b"nonsense\n" + GOOD, [("garbage", 2, True)]),
    Case("a line that is not JSON", GOOD + b"\0" * 9 + b"\n" + GOOD, [("garbage", 2, True)]),
    *(
        Case("a number, null", GOOD + value + b"\n", [("not-an-object", 2, True)])
        for value in (b"5", b"null", b"[1]", b'"text"')
    ),
    Case("unknown key", GOOD + line('"more": 1'), [("unknown-key", 2, True)]),
    Case("no `step`", GOOD + b'{"role": "user"}\n', [("no-step", 2, True)]),
    Case("no `step`", GOOD + b'{"step": 1}\n', [("no-role", 2, True)]),
    Case("a value that does not fit", line('"content": ["x"]'), [("wrong-type", 1, True)]),
    Case("a value that does not fit", b'{"step": -1, "role": "a"}\n', [("wrong-type", 1, True)]),
    *(
        Case('`"1"`, `1.0`', line(f'"exit_code": {value}'), [("coerced", 1, False)])
        for value in ('"1"', "1.0", "true")
    ),
    Case("unknown or empty role", b'{"step": 1, "role": "x"}\n', [("unknown-role", 1, False)]),
    Case("unknown or empty role", b'{"step": 1, "role": ""}\n', [("unknown-role", 1, False)]),
    Case("unknown or empty role", GOOD.replace(b"1", b"2") + GOOD, [("decreasing-step", 2, False)]),
    Case("byte order mark", b"\xef\xbb\xbf" + GOOD, [("byte-order-mark", 1, True)]),
    Case("bytes that are not", GOOD + GOOD.replace(b"x", b"\xff"), [("invalid-utf-8", 2, True)]),
    Case("raw control", GOOD + GOOD.replace(b"x", b"\0"), [("control-character", 2, True)]),
    Case("raw control", GOOD + GOOD.replace(b"x", b"\x1b[31m"), [("control-character", 2, True)]),
    Case("`NaN`", line('"metadata": {"a": NaN}'), [("not-a-json-number", 1, True)]),
    Case("`NaN`", line('"metadata": {"a": -Infinity}'), [("not-a-json-number", 1, True)]),
    Case("the same key twice", line('"content": "", "content": "b"'), [("duplicate-key", 1, True)]),
    Case("half a surrogate pair", line(r'"content": "\ud800"'), [("half-character", 1, False)]),
    Case(
        "brackets nested",
        GOOD + line(f'"metadata": {"[" * 200_000}{"]" * 200_000}'),
        [("too-deep", 2, True)],
    ),
]


def table() -> dict[str, set[str]]:
    """The rows of the page: what is met, and the codes it has."""
    page = (ROOT / "docs" / "reference" / "trace-files.md").read_text()
    rows = page.split("| met | strict |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [row.strip("| ").split(" | ") for row in rows]
    return {
        each[0]: set(re.findall("`([a-z0-9-]+)`", each[3])) if len(each) > 3 else set()
        for each in cells
    }


def noticed_by(proctor: Proctor, path: Path) -> tuple[int, list[tuple[str, int | None, bool]]]:
    ran = proctor("check", path, "--json")
    (found,) = json.loads(ran.out)["checked"]
    assert found["thing"] == "trajectory"
    assert found["sound"] is (ran.code == 0)
    seen = [(each["code"], each["line"], each["is_problem"]) for each in found["diagnostics"]]
    return ran.code, seen


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.met)
def test_every_row_has_its_code_and_its_line(proctor: Proctor, tmp_path: Path, case: Case) -> None:
    path = tmp_path / "trajectory.jsonl"
    path.write_bytes(case.data)
    code, noticed = noticed_by(proctor, path)
    assert noticed == case.noticed
    assert code == (1 if any(is_problem for _, _, is_problem in noticed) else 0)
    (row,) = [codes for met, codes in table().items() if met.startswith(case.met)]
    assert {found for found, _, _ in noticed} <= row


def test_a_line_that_is_too_long_is_stepped_over(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    with path.open("wb") as file:
        file.write(GOOD)
        file.seek((1 << 28) + 1000)
        file.write(b"\n" + GOOD)
    assert noticed_by(proctor, path) == (1, [("line-too-long", 2, True)])


def test_a_file_that_changes_meanwhile_is_said_to(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"

    def codes(size: int) -> list[tuple[str, bool]]:
        path.write_bytes(GOOD * 10_000)
        chunks = read_chunks(str(path), salvage=True, thorough=True)
        found: list[Chunk] = [next(chunks)]
        with path.open("r+b") as file:
            file.truncate(size)
        found += chunks
        last = found[-1].diagnostics
        return [(each.code, each.is_problem) for each in last]

    assert codes(len(GOOD) * 5_000) == [("file-shrank", True)]
    assert codes(len(GOOD) * 20_000) == [("file-grew", False)]


def test_the_page_and_the_program_name_the_same_codes() -> None:
    on_the_page = set().union(*table().values())
    elsewhere = {"line-too-long", "file-grew", "file-shrank"}
    assert {code for case in CASES for code, _, _ in case.noticed} | elsewhere == on_the_page
    source = "".join(
        (ROOT / "src" / "proctor" / "traces" / name).read_text()
        for name in ("trajectory.py", "lines.py")
    )
    pattern = r'(?:report|note|Diagnostic)\(\s*f?"([a-z0-9{}-]+)"'
    in_the_program = set(re.findall(pattern, source)) - {"no-{key}"} | {"no-step", "no-role"}
    assert in_the_program == on_the_page


def test_every_row_of_the_page_has_a_case() -> None:
    elsewhere = ("no such file", "a line of up to", "a longer one", "the file ")
    for met in table():
        cased = any(met.startswith(case.met) for case in CASES)
        assert cased or met.startswith(elsewhere), met


_MEASURED = """
import sys
from proctor.cli.main import main
try:
    main()
except SystemExit as left:
    # Not ru_maxrss, which begins with what the parent had.
    status = open("/proc/self/status").read()
    print(left.code, status.split("VmHWM:")[1].split()[0], file=sys.stderr)
"""


def check_measured(path: Path) -> tuple[str, int]:
    """What a check that fails prints, and the bytes of memory that it took."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, "check", str(path)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    code, kibibytes = done.stderr.split()
    assert code == "1"
    return done.stdout, int(kibibytes) << 10


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_problem_on_every_line_is_counted_and_not_kept(tmp_path: Path, count: int) -> None:
    path = tmp_path / "trajectory.jsonl"
    path.write_bytes(b"5\n" * count)
    out, peak = check_measured(path)
    first, *rest = out.splitlines()
    assert first.endswith(f": trajectory: no header, 0 entries: {count:,} problems")
    assert rest[:20] == [f"  line {n}: 5; expected a JSON object" for n in range(1, 21)]
    assert rest[20:] == [f"  and {count - 20:,} more like it (not-an-object)"]
    assert peak < 64 << 20


def test_a_script_is_told_how_many_more_there_are(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    path.write_bytes(b"5\n" * 30 + b"null\n" + b"\0\n" * 20)
    (found,) = json.loads(proctor("check", path, "--json").out)["checked"]
    assert found["more"] == {"not-an-object": 11}
    assert len(found["diagnostics"]) == 40


def test_many_files_are_read_by_several_processes(proctor: Proctor, tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.jsonl" for n in range(12)]
    for path in paths:
        path.write_bytes(line(f'"content": "{"x" * 30_000}"') * 110)
    assert sum(path.stat().st_size for path in paths) > 1 << 25
    assert proctor("check", *paths).code == 0
    with paths[7].open("ab") as file:
        file.write(b"torn")
    ran = proctor("check", *paths)
    assert ran.code == 1
    heads = [text for text in ran.out.splitlines() if not text.startswith(" ")]
    assert [text.split(": ")[0] for text in heads] == [str(path) for path in paths]
    assert [n for n, text in enumerate(heads) if text.endswith("1 problem")] == [7]
    assert "  line 111: the file ends inside a line, after 4 bytes of it" in ran.out
    ran = proctor("check", *paths, tmp_path / "missing")
    missing = f"{tmp_path / 'missing'}: cannot be read: No such file or directory"
    assert (ran.code, ran.err) == (2, f"proctor: {missing}\n")
    assert len(ran.out.splitlines()) == len(paths) + 1
    document = json.loads(proctor("check", "--json", *paths, tmp_path / "missing").out)
    assert (document["sound"], document["refused"]) == (False, [missing])
    assert len(document["checked"]) == len(paths)


def test_every_real_trace_passes(proctor: Proctor) -> None:
    data = ROOT / "tests" / "data"
    traces = sorted((data / "harbor").rglob("trajectory.json"))
    traces += sorted(path for path in (data / "harbor").rglob("*.jsonl") if path.is_file())
    traces += sorted((data / "conversations").glob("*[!h].jsonl"))  # aec-bench.jsonl holds cases
    assert len(traces) > 100
    ran = proctor("check", *traces)
    assert (ran.code, ran.err) == (0, "")
    heads = [text for text in ran.out.splitlines() if not text.startswith(" ")]
    assert len(heads) == len(traces)
    assert all(text.endswith(": no problem") for text in heads)
    kinds = {
        text.removeprefix(f"{path}: ").split(":")[0]
        for path, text in zip(traces, heads, strict=True)
    }
    assert kinds == {"ATIF trajectory", "conversation"}


def test_a_problem_of_an_atif_file_has_its_place(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    document = {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "more": 1}
    document["steps"] = [{"step_id": 5, "source": "user", "message": "m"}]
    path.write_text(json.dumps(document))
    ran = proctor("check", path)
    assert ran.code == 1
    assert ran.out.splitlines()[0].startswith(f"{path}: ATIF trajectory: ATIF-v1.7, 1 step by a 1")
    assert "more is not a field of ATIF" in ran.out
    assert "steps[0].step_id" in ran.out


def test_a_problem_of_a_conversation_has_its_line(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "conversation.jsonl"
    path.write_bytes(b'{"role": "user", "content": "x"}\n5\n{"role": "assistant", "n": NaN}\n{"ro')
    ran = proctor("check", path, "--json")
    (found,) = json.loads(ran.out)["checked"]
    assert ran.code == 1
    assert (found["thing"], found["summary"].split(",")[0]) == ("conversation", "2 turns")
    assert [(each["code"], each["line"]) for each in found["diagnostics"]] == [
        ("not-an-object", 2),
        ("not-a-json-number", 3),
        ("torn-line", 4),
    ]


def test_media_that_are_not_there_are_noted(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    (tmp_path / "here.png").write_bytes(b"png")
    path.write_bytes(GOOD + line('"media": ["here.png", "gone.png", "../out.png"]'))
    code, noticed = noticed_by(proctor, path)
    assert code == 0
    assert noticed == [("media-missing", 2, False), ("media-outside", 2, False)]


def test_media_of_a_trial_lie_with_its_artifacts(proctor: Proctor, tmp_path: Path) -> None:
    for name in ("agent", "artifacts"):
        (tmp_path / name).mkdir()
    (tmp_path / "artifacts" / "ok.png").write_bytes(b"x")
    path = tmp_path / "agent" / "trajectory.jsonl"
    path.write_bytes(line('"media": ["ok.png", "gone.png"]'))
    out = proctor("check", path).out
    assert "names 'gone.png'" in out
    assert "ok.png" not in out


def test_endless_blank_lines_and_roles_cost_little(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "trajectory.jsonl"
    long = b'{"step": 1, "role": "' + b"r" * 100_000 + b'"}\n'
    path.write_bytes(b"\n" * 5_000_000 + long * 20)
    ran = proctor("check", path)
    assert ran.code == 0
    first = ran.out.splitlines()[0]
    assert first.endswith(f"20 entries, last step 1: 20 {'r' * 40}: no problem")
    assert "  note: line 5000001: role is " in ran.out
