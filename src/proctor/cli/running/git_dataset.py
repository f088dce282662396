"""The tasks of a dataset in a git repository, as a job's config lists them."""

from collections.abc import Mapping

from proctor.cli.fetching import make_report
from proctor.cli.running.flags import RunFlags
from proctor.harbor.configs import DatasetConfig, TaskConfig
from proctor.job.cache import find_caches
from proctor.job.datasets import choose_tasks
from proctor.job.fetching import Fetching, say_nothing
from proctor.job.git_source import list_git_dataset, parse_git_source


def list_git_tasks(
    dataset: str, flags: RunFlags, host: Mapping[str, str], *, quiet: bool
) -> list[TaskConfig]:
    """The chosen tasks, each with the commit that the dataset's ref names now."""
    source = parse_git_source(dataset)
    fetching = Fetching(say_nothing if quiet else make_report())
    found = list_git_dataset(source, find_caches(host), host, fetching)
    wanted = DatasetConfig(
        name=found.name,
        task_names=list(flags.include) or None,
        exclude_task_names=list(flags.exclude) or None,
    )
    names = [task.path.name for task in found.tasks]
    chosen = choose_tasks(dataset, wanted, names, found.tasks)[: flags.n_tasks]
    return [
        TaskConfig(
            path=task.path,
            git_url=task.git_url,
            git_commit_id=task.git_commit_id,
            source=found.name,
        )
        for task in chosen
    ]


def name_git_dataset(tasks: list[TaskConfig]) -> str:
    """The id of a dataset in a git repository, for records: its name and its commit."""
    return f"{tasks[0].source}@{tasks[0].git_commit_id}"
