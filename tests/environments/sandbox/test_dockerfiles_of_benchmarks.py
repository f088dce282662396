"""Every Dockerfile of Terminal-Bench can be built, where a copy of the benchmark is at hand."""

from pathlib import Path

import pytest

from proctor.environments.sandbox.roots.bases import load_dockerfile
from proctor.environments.sandbox.roots.context import Context
from proctor.environments.sandbox.roots.instructions import Copy, Recipe, Start, plan_recipe
from proctor.errors import ImageError

REPOSITORY = Path(__file__).resolve().parents[3]
TASKS = REPOSITORY.parent / "shared" / "terminal-bench" / "tasks"
# Files that the benchmark keeps in LFS, and copies of it may lack.
LARGE = ("task-deps/video.mp4", "weights.pt")


def plan_stages(environment_dir: Path) -> list[Recipe]:
    """The recipes of the stages that the last one needs."""
    dockerfile = load_dockerfile(environment_dir)
    assert dockerfile is not None
    assert dockerfile.images
    recipes: dict[int, Recipe] = {}
    for stage in dockerfile.needed:
        above = stage.source.stage
        start = Start({}) if above is None else recipes[above].result
        recipes[stage.number] = plan_recipe(dockerfile, stage, start)
    return list(recipes.values())


@pytest.mark.soak
@pytest.mark.skipif(not TASKS.is_dir(), reason="needs a copy of Terminal-Bench next to the source")
def test_every_dockerfile_of_terminal_bench_is_planned_with_its_files() -> None:
    found = sorted(TASKS.glob("*/environment/Dockerfile"))
    assert len(found) == 89
    missing: list[str] = []
    notes: list[str] = []
    for path in found:
        context = Context(path.parent)
        for recipe in plan_stages(path.parent):
            notes += recipe.notes
            for step in recipe.steps:
                if isinstance(step, Copy) and step.source is None:
                    try:
                        context.select(step)
                    except ImageError as error:
                        missing.append(str(error).partition(": ")[0])
    assert [one for one in missing if one not in LARGE] == []
    assert notes == []
