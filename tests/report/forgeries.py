"""Case files that somebody edited, each with what catches it.

A forger who is careless edits the file; one who is careful has proctor write the page anew around
data that was edited. Neither has the ledger's key.
"""

from collections.abc import Callable
from dataclasses import dataclass

from proctor.report.case.page import load_script
from tests.report.cases import (
    FILES,
    Data,
    change_line,
    digest_of,
    drop_file,
    edit,
    own_entry,
    redo,
    replace_file,
    with_script,
)

type Forge = Callable[[bytes], bytes]

TREE = "The entries are in the tree signed by the checkpoint"
SIGNED = "The ledger's key signed the checkpoint"
EVIDENCE = "The evidence matches what was sealed"
LEFT_OUT = "Every missing file has a reason"
READABLE = "The data in the page can be read"
REMARKS = "Later entries refer to this record"
REWARD = "The reward follows from the reward file"
PAGE = "The page says what its data says"


@dataclass(frozen=True, slots=True)
class Forgery:
    """An edit of a case file."""

    name: str
    forge: Forge
    shown: str | None
    """The check of the page that fails; None where only `proctor check` can see it."""
    code: str
    """What `proctor check` calls it."""


def _redone(change: Callable[[Data], None]) -> Forge:
    return lambda page: redo(page, change)


def _edited(change: Callable[[Data], None]) -> Forge:
    return lambda page: edit(page, change)


def _replaced(old: bytes, new: bytes) -> Forge:
    def forge(page: bytes) -> bytes:
        assert old in page
        return page.replace(old, new, 1)

    return forge


def _swap(data: Data) -> None:
    one, other = data["files"][0], data["files"][1]
    one["deflate"], other["deflate"] = other["deflate"], one["deflate"]


def _edit_path(data: Data) -> None:
    own_entry(data)["path"][0] = "0" * 64


def _cut_path(data: Data) -> None:
    own_entry(data)["path"].pop()


def _edit_root(data: Data) -> None:
    lines = data["checkpoint"].split("\n")
    lines[2] = ("B" if lines[2][0] == "A" else "A") + lines[2][1:]
    data["checkpoint"] = "\n".join(lines)


def _edit_size(data: Data) -> None:
    data["checkpoint"] = data["checkpoint"].replace("\n5\n", "\n4\n", 1)


def _edit_signature(data: Data) -> None:
    before, letter, after = (
        data["checkpoint"][:-20],
        data["checkpoint"][-20],
        data["checkpoint"][-19:],
    )
    data["checkpoint"] = before + ("B" if letter == "A" else "A") + after


def _other_key(data: Data) -> None:
    entry = data["entries"][0]
    key = "example.org/me+42a4bda0+AZ2O8Xlz0bSFiu5eAzjFtRYJsuwpVDo2YzzkB5e2QDVk"
    start, _, rest = entry["line"].partition('"key":"')
    entry["line"] = f'{start}"key":"{key}"{rest[rest.index(chr(34)) + 1 :]}'


def _drop_key(data: Data) -> None:
    data["entries"] = data["entries"][1:]


def _drop_trial(data: Data) -> None:
    data["trial"] = data["entries"][-1]["seq"]


def _move(data: Data) -> None:
    own_entry(data)["seq"] = data["trial"] = data["trial"] - 1


def _change_verdict(data: Data) -> None:
    data["entries"][-1]["line"] = data["entries"][-1]["line"].replace('"pass"', '"fail"')


def _add_bomb(data: Data) -> None:
    replace_file("result.json", bytes(5_000_000))(data)


def _add_strange_file(data: Data) -> None:
    data["files"].append({"sha256": "0" * 64, "deflate": data["files"][0]["deflate"]})


def _double_key(data: Data) -> None:
    change_line('"reward":1.0,', '"reward":1.0,"reward":0.0,')(data)


def _name_twice(data: Data) -> None:
    """The reward file named again, with the digest of a file that is in the page."""
    other, path = digest_of(data, "result.json"), '"path":"verifier/reward.txt"'
    line = own_entry(data)["line"]
    start = line.index(path)
    first = line.rindex("{", 0, start)
    twin = f'{{{path},"sha256":"{other}","size":{len(FILES["result.json"])}}},'
    own_entry(data)["line"] = line[:first] + twin + line[first:]


def _add_script(page: bytes) -> bytes:
    policy = page.replace(b"script-src ", b"script-src &#x27;unsafe-inline&#x27; ", 1)
    return policy.replace(b"</body>", b"<script>document.title += '!'</script></body>")


def _lie(page: bytes) -> bytes:
    script = b"""
      const said = document.createElement("p");
      said.className = "verdict good";
      said.textContent = "9 checks passed, none failed.";
      document.getElementById("case").replaceChildren(said);
    """
    return with_script(page, script)


def _soften(page: bytes) -> bytes:
    """The script with one check that always passes."""
    script = load_script().replace("if (shown.altered.size) throw", "if (false) throw").encode()
    return with_script(redo(page, replace_file("result.json", b"{}")), script)


FORGERIES = (
    Forgery(
        "the reward in the record",
        _redone(change_line('"reward":1.0', '"reward":0.5')),
        TREE,
        "not-proven",
    ),
    Forgery(
        "the model's name", _redone(change_line('"model":"', '"model":"x')), TREE, "not-proven"
    ),
    Forgery(
        "a finding that is gone",
        _redone(change_line('"code":"reward-seeded"', '"code":"none"')),
        TREE,
        "not-proven",
    ),
    Forgery(
        "one space in the line",
        _edited(change_line('"kind":"trial"', '"kind": "trial"')),
        TREE,
        "not-proven",
    ),
    Forgery("a key twice in the line", _edited(_double_key), READABLE, "damaged"),
    Forgery(
        "the visible reward",
        _replaced(b"<dt>Reward</dt><dd>1.0</dd>", b"<dt>Reward</dt><dd>0.0</dd>"),
        PAGE,
        "page-differs",
    ),
    Forgery(
        "a visible step",
        _replaced(b"<dd>I look around.</dd>", b"<dd>I cheat.</dd>"),
        PAGE,
        "page-differs",
    ),
    Forgery(
        "a sentence more",
        _replaced(b"<section>", b"<p>Verified by a notary.</p><section>"),
        PAGE,
        "page-differs",
    ),
    Forgery(
        "an element more",
        _replaced(b"</main>", b"</main><div>Verified by a notary.</div>"),
        PAGE,
        "page-differs",
    ),
    Forgery(
        "a head that leads elsewhere",
        _replaced(b"<title>", b'<meta http-equiv="refresh" content="99; url=about:blank"><title>'),
        PAGE,
        "page-differs",
    ),
    Forgery("the title", _replaced(b"<title>", b"<title>Certified: "), PAGE, "page-differs"),
    Forgery(
        "a style that hides what failed",
        _replaced(b"</style>", b".verdict { display: none }</style>"),
        PAGE,
        "page-differs",
    ),
    Forgery("a script more, and a policy that lets it run", _add_script, PAGE, "damaged"),
    Forgery(
        "bytes of the evidence",
        _redone(replace_file("verifier/test-stdout.txt", b"3 passed, 0 failed\n")),
        EVIDENCE,
        "altered-evidence",
    ),
    Forgery(
        "the reward file",
        _redone(replace_file("verifier/reward.txt", b"0\n")),
        EVIDENCE,
        "altered-evidence",
    ),
    Forgery("the reward file named twice", _redone(_name_twice), REWARD, "reward-not-shown"),
    Forgery(
        "the reward file said to be too large",
        _redone(drop_file("verifier/reward.txt", "size")),
        REWARD,
        "reward-not-shown",
    ),
    Forgery("two files swapped", _redone(_swap), EVIDENCE, "altered-evidence"),
    Forgery("a file that unpacks to more", _redone(_add_bomb), EVIDENCE, "altered-evidence"),
    Forgery(
        "a file said to have a terabyte",
        _edited(change_line('"size":2}', '"size":1099511627776}')),
        EVIDENCE,
        "damaged",
    ),
    Forgery("a file that nobody named", _edited(_add_strange_file), EVIDENCE, "damaged"),
    Forgery(
        "the verifier's output gone",
        _redone(drop_file("verifier/test-stdout.txt")),
        LEFT_OUT,
        "missing-evidence",
    ),
    Forgery(
        "the verifier's output said to be withheld",
        _redone(drop_file("verifier/test-stdout.txt", "withheld")),
        LEFT_OUT,
        "missing-evidence",
    ),
    Forgery("a hash of the proof", _redone(_edit_path), TREE, "not-proven"),
    Forgery("a shorter proof", _redone(_cut_path), TREE, "not-proven"),
    Forgery("another place in the log", _redone(_move), TREE, "not-proven"),
    Forgery("the checkpoint's root", _redone(_edit_root), TREE, "not-proven"),
    Forgery("the checkpoint's size", _redone(_edit_size), SIGNED, "bad-signature"),
    Forgery("the checkpoint's signature", _redone(_edit_signature), SIGNED, "bad-signature"),
    Forgery("another key", _redone(_other_key), TREE, "not-proven"),
    Forgery("no key", _edited(_drop_key), SIGNED, "no-key"),
    Forgery("a verdict of a review", _redone(_change_verdict), TREE, "not-proven"),
    Forgery("another entry as the trial", _edited(_drop_trial), READABLE, "damaged"),
    Forgery("another script", _lie, None, "page-differs"),
    Forgery("a script with one check less", _soften, None, "altered-evidence"),
)
