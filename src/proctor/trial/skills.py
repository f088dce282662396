"""Upload the skills that a job provides to its agents; harbor/skills.py finds them."""

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from proctor.harbor.skills import Skill
from proctor.task.config import TaskConfig
from proctor.trial.environment import Environment
from proctor.trial.inside import empty_directories
from proctor.trial.paths import INSIDE


def find_skills_dir(task: TaskConfig, skills: Sequence[Skill]) -> str | None:
    """Directory of skills inside the environment; None without skills.

    Raises:
        ValueError: the job provides skills and the task's directory for them is not absolute.
    """
    configured = task.environment.skills_dir
    if not configured:
        return str(INSIDE.default_skills_dir) if skills else None
    if skills and not PurePosixPath(configured).is_absolute():
        raise ValueError(
            f"Injected skills require environment.skills_dir to be absolute; got {configured!r}. "
            "Use an absolute path like '/skills' or omit environment.skills_dir to use "
            "/harbor/skills."
        )
    return configured


async def upload_skills(
    environment: Environment, skills: Sequence[Skill], skills_dir: str | None
) -> None:
    """Upload the job's skills to the agent's directory, readable by everyone."""
    if not skills or skills_dir is None:
        return
    targets = [PurePosixPath(skills_dir) / skill.name for skill in skills]
    await empty_directories(environment, targets, open_to_all=False)
    for skill, target in zip(skills, targets, strict=True):
        await environment.upload_dir(source_dir=skill.source, target_dir=str(target))
    listed = " ".join(shlex.quote(str(target)) for target in targets)
    await environment.exec(command=f"chmod -R a+rX {listed}", user="root")
