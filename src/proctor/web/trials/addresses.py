"""The addresses of a trial's pages; names in them are quoted."""

from urllib.parse import quote


def trial_address(experiment: str, trial: str) -> str:
    """The page of a trial."""
    return f"/trials/{quote(experiment, safe='')}/{quote(trial, safe='')}"


def file_address(experiment: str, trial: str, path: str) -> str:
    """The page of one of its files; `?raw=1` gives the bytes."""
    return f"{trial_address(experiment, trial)}/files/{quote(path)}"
