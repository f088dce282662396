"""The addresses of a trial's files; names in them are quoted."""

from urllib.parse import quote

from proctor.web.shown import trial_path


def file_path(experiment: str, trial: str, path: str) -> str:
    """The page of one of its files; `?raw=1` gives the bytes."""
    return f"{trial_path(experiment, trial)}/files/{quote(path)}"
