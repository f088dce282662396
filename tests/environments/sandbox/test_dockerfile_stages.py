"""The stages of a Dockerfile: which ones are needed, and what they take from each other."""

import pytest

from proctor.environments.sandbox.roots.dockerfile import Dockerfile, Source, parse_dockerfile
from proctor.environments.sandbox.roots.instructions import Copy, Recipe, Run, Start, plan_recipe
from proctor.errors import ImageError


def parse(text: str) -> Dockerfile:
    return parse_dockerfile(text, "Dockerfile")


def plan_all(text: str) -> list[Recipe]:
    """The recipes of the stages that are needed, each on what it is FROM."""
    dockerfile = parse(text)
    recipes: dict[int, Recipe] = {}
    for stage in dockerfile.needed:
        above = stage.source.stage
        start = Start({}) if above is None else recipes[above].result
        recipes[stage.number] = plan_recipe(dockerfile, stage, start)
    return list(recipes.values())


def sources(text: str) -> list[Source | None]:
    """Where the files of the last stage come from."""
    return [step.source for step in plan_all(text)[-1].steps if isinstance(step, Copy)]


def test_copy_takes_files_from_a_stage_by_name_or_number_and_from_an_image() -> None:
    text = (
        "FROM a AS Build\nFROM b\nCOPY --from=bUILD /x /x\nCOPY --from=0 /x /x\n"
        "COPY --from=org/c:1 /x /x\nCOPY x /x\n"
    )
    first = Source(stage=0)
    assert sources(text) == [first, first, Source(image="org/c:1"), None]


def test_a_stage_may_be_from_an_earlier_one() -> None:
    dockerfile = parse("FROM a AS one\nFROM ONE AS two\nFROM two\n")
    assert [stage.source for stage in dockerfile.stages] == [
        *(Source(image="a"), Source(stage=0), Source(stage=1))
    ]


def test_the_last_of_several_stages_with_one_name_counts() -> None:
    assert parse("FROM a AS x\nFROM b AS x\nFROM x\n").stages[-1].source == Source(stage=1)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("FROM a\nFROM b\n", [1]),
        ("FROM a AS x\nFROM b AS y\nCOPY --from=x /f /f\nFROM c\nCOPY --from=y /f /f\n", [0, 1, 2]),
        ("FROM a AS x\nFROM b AS y\nFROM x\n", [0, 2]),
        ("FROM a AS test\nONBUILD RUN x\nFROM b\n", [1]),
    ],
)
def test_only_stages_that_the_last_one_needs_are_built(text: str, numbers: list[int]) -> None:
    assert [stage.number for stage in parse(text).needed] == numbers
    assert plan_all(text)


def test_arguments_belong_to_a_stage_and_to_those_from_it() -> None:
    text = (
        "ARG V=global\nFROM a AS one\nARG V\nARG W=w\nFROM one AS two\nRUN two\n"
        "FROM b\nCOPY --from=two /x /x\nRUN three\nARG V=own\nRUN four\n"
    )
    one, two, three = plan_all(text)
    assert one.result.arguments == {"V": "global", "W": "w"}
    (run,) = two.steps
    assert isinstance(run, Run)
    assert (run.env["V"], run.env["W"]) == ("global", "w")
    runs = [step for step in three.steps if isinstance(step, Run)]
    assert [run.env.get("V") for run in runs] == [None, "own"]
    assert "W" not in runs[0].env


def test_a_stage_begins_with_the_settings_of_the_one_it_is_from() -> None:
    text = (
        'FROM a AS one\nENV E=1\nWORKDIR /w\nUSER ada\nSHELL ["/bin/bash", "-c"]\n'
        "FROM one\nRUN x\nFROM b\nCOPY --from=1 /x /x\nRUN y\n"
    )
    _, two, three = plan_all(text)
    inherited, fresh = two.steps[0], three.steps[-1]
    assert isinstance(inherited, Run)
    assert isinstance(fresh, Run)
    assert (inherited.argv[0], inherited.cwd, inherited.user) == ("/bin/bash", "/w", "ada")
    assert inherited.env["E"] == "1"
    assert (fresh.argv[0], fresh.cwd, fresh.user) == ("/bin/sh", "/", "root")
    assert "E" not in fresh.env


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM a\nCOPY --from=0 /x /x", "2: COPY: --from=0: not the number of an earlier stage"),
        ("FROM a\nCOPY --from=7 /x /x", "--from=7: not the number of an earlier stage"),
        ("FROM a AS me\nCOPY --from=ME /x /x", "COPY: --from=ME: not an earlier stage"),
        ("FROM a AS x\nCOPY --from=z /x /x\nFROM b AS z\nFROM x", "--from=z: not an earlier stage"),
        ("FROM a\nCOPY --from=$X /x /x", "variables are not expanded there, as in Docker; write"),
        ("FROM a\nCOPY --from= /x /x", "--from= is empty; expected a stage or an image"),
        ("FROM a AS 1x", "Dockerfile:1: FROM: AS 1x: not a name of a stage"),
    ],
)
def test_a_stage_that_is_not_there_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ImageError) as caught:
        plan_all(text)
    assert said in str(caught.value)
