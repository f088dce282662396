"""Random small task directories: whole ones, broken ones, and odd things in them."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

CONFIGS = (
    'version = "1.0"\n',
    "[agent]\ntimeout_sec = 5\n",
    '[environment]\nos = "Windows"\n',
    '[verifier]\nenvironment_mode = "separate"\n',
    '[[steps]]\nname = "one"\n\n[[steps]]\nname = "two"\n',
    '[[steps]]\nname = "one"\n[steps.verifier.environment]\ncpus = 1\n',
    '[verifier.environment]\n[[steps]]\nname = "two"\nverifier.environment_mode = "shared"\n',
    '[[steps]]\nname = ".."\n',
    f'[[steps]]\nname = "one"\n\n[[steps]]\nname = "{"x" * 300}"\n',
    '[[steps]]\nname = "nul\\u0000"\n',
    "steps = []\r\nsource = 'a'\r",
    "this is [not toml",
    "[agent]\ntimeout_sec = 'soon'\n",
    '[environment]\nmemory = "infG"\n',
    "cpus = " + "9" * 5000,
    "\ufeffversion = '1'\n",
)
NAMES = (
    "test.sh", "test.bat", "solve.sh", "a", "B", "b.pyc", "c~", ".hidden", ".DS_Store", "x.swp",
    "instruction.md", "data.txt", "with space", "new\nline", "-dash", "name:x", "ünï", "Ünï",
    "日本", "#hash", "!bang", "\\back", "a*b", "[x]", "\u2028sep", "TEST.SH", "__pycache__",
)  # fmt: skip
PATTERNS = (
    "*", "*.sh", "!*.sh", "!test.sh", "tests/", "/tests", "tests/*", "!tests/test.sh", "a", "/a",
    "**/a", "a/**", "**", "*~", "# comment", "", "   ", "\\#hash", "\\!bang", "!", "/", "[a-c]*",
    "[!a]", "data.txt ", "data.txt\\ ", "b.*\x0cc~", "?", "environment/**/a", "ünï", "*.PYC",
    "steps/one", "[", "a//b", "***", "**a",
)  # fmt: skip
TEXT = ("# canary\n", "<!-- Canary -->\r\n", "\n", " \r", "do it\n", "ünï", "\u2028")
PLACES = (
    "",
    "environment",
    "tests",
    "solution",
    "steps",
    "steps/one",
    "steps/two",
    "other",
    ".git",
)


def make_tree(random: Random, root: Path) -> Path:
    """A task directory below root; beside it something that links may lead to."""
    task, beside = root / "task", root / "beside"
    for place in (task, beside, beside / "deep"):
        place.mkdir(parents=True)
    (beside / "deep" / "file").write_bytes(random.randbytes(5))
    _write_usual(random, task)
    for _ in range(random.randrange(12)):
        _write_odd(random, task)
    if random.random() < 0.5:
        lines = random.choices(PATTERNS, k=random.randrange(6))
        ends = random.choice(["\n", "\r\n", "\r"])
        _attempt(lambda: (task / ".gitignore").write_bytes(ends.join(lines).encode()))
    return task


def _write_usual(random: Random, task: Path) -> None:
    (task / "task.toml").write_bytes(random.choice(CONFIGS[: random.choice([5, 16])]).encode())
    for name in ("environment/Dockerfile", "instruction.md", "tests/test.sh", "solution/solve.sh"):
        _write(random, task / name)
    for step in ("one", "two"):
        for name in ("instruction.md", "tests/test.sh"):
            if random.random() < 0.7:
                _write(random, task / "steps" / step / name)
    for name in ("task.toml", "environment/Dockerfile", "instruction.md", "tests/test.sh"):
        if random.random() < 0.06:
            (task / name).unlink()
    if random.random() < 0.1:
        _attempt((task / "environment").rmdir)


def _write(random: Random, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name == "instruction.md":
        path.write_text("".join(random.choices(TEXT, k=8)), newline="")
    else:
        path.write_bytes(random.randbytes(random.randrange(20)))


def _write_odd(random: Random, task: Path) -> None:
    place = task / random.choice(PLACES) / random.choice(["", "", *NAMES])
    path = place / random.choice(NAMES)
    link = random.choice(["a", "../a", ".", "..", "../..", "../../beside", "../beside/deep", "b"])
    deeds: list[Callable[[], object]] = [
        *[lambda: _write(random, path)] * 6,
        lambda: path.mkdir(parents=True),
        lambda: _write(random, place / ".gitignore"),
        lambda: _link(path, link),
        lambda: _link(path, str(task.parent / "beside")),
        lambda: _link(path, str(task.parent / "beside/deep/file")),
        lambda: _link(path, random.choice(NAMES)),
        # Not in the place of an instruction, where harbor would wait for ever.
        lambda: os.mkfifo(place / "pipe"),
    ]
    if random.random() < 0.03:
        deeds = [lambda: _write(random, Path(os.fsdecode(os.fsencode(place) + b"/\xff")))]
    if random.random() < 0.03:
        deeds = [lambda: _link(task / "README.md", link), (task / "README.md").mkdir]
    _attempt(random.choice(deeds))


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _attempt(deed: Callable[[], object]) -> None:
    """Do it, unless something else of the kind stands there or in the way."""
    try:
        deed()
    except OSError:
        return
