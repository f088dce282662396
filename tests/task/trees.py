"""Small task directories for tests."""

from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data" / "harbor"
TASKS = DATA / "tasks"
JOBS = DATA / "jobs"


def write(root: Path, files: dict[str, str]) -> Path:
    """Files below a directory, by path."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def make_task(root: Path, config: str = "", **changes: str) -> Path:
    """A task that harbor takes, unless its config is changed to one that it does not."""
    return write(
        root,
        {
            "task.toml": config,
            "instruction.md": "Do it.\n",
            "environment/Dockerfile": "FROM scratch\n",
            "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
            "solution/solve.sh": "true\n",
            **changes,
        },
    )


def make_steps(root: Path, *names: str, config: str = "") -> Path:
    """A task of several steps, each with its own test."""
    tables = "".join(f'[[steps]]\nname = "{name}"\n' for name in names)
    files = {"task.toml": config + tables, "environment/Dockerfile": "FROM scratch\n"}
    for name in names:
        files[f"steps/{name}/instruction.md"] = f"Do {name}.\n"
        files[f"steps/{name}/tests/test.sh"] = "true\n"
        files[f"steps/{name}/solution/solve.sh"] = "true\n"
    return write(root, files)
