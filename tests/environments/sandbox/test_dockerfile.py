"""A Dockerfile becomes steps, by Docker's rules."""

import pytest

from proctor.environments.sandbox.roots.dockerfile import Dockerfile, Source, parse_dockerfile
from proctor.environments.sandbox.roots.instructions import (
    DEFAULT_PATH,
    Copy,
    MakeDirectory,
    Recipe,
    Run,
    Start,
    Step,
    plan_recipe,
)
from proctor.errors import ImageError
from proctor.task.environment import Healthcheck


def parse(text: str) -> Dockerfile:
    return parse_dockerfile(text, "Dockerfile")


def plan(text: str, **env: str) -> Recipe:
    """What is made of a base that is called base."""
    return plan_last(f"FROM base\n{text}", **env)


def plan_last(text: str, **env: str) -> Recipe:
    """What is made of the last stage."""
    dockerfile = parse(text)
    return plan_recipe(dockerfile, dockerfile.stages[-1], Start(env))


def only(text: str, **env: str) -> Step:
    (step,) = plan(text, **env).steps
    return step


def run(text: str, **env: str) -> Run:
    step = only(text, **env)
    assert isinstance(step, Run)
    return step


def copy(text: str, **env: str) -> Copy:
    step = only(text, **env)
    assert isinstance(step, Copy)
    return step


def command(text: str, **env: str) -> str:
    """What the shell is given."""
    step = run(text, **env)
    assert step.argv[:2] == ("/bin/sh", "-c")
    return step.argv[2]


def refusal(text: str) -> str:
    with pytest.raises(ImageError) as caught:
        plan(text)
    return str(caught.value)


# FROM and ARG


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("FROM debian:12", "debian:12"),
        ("from debian:12 as main", "debian:12"),
        ("ARG TAG=3.12\nFROM python:${TAG}-slim AS base", "python:3.12-slim"),
        ("ARG A=1 B=$A\nFROM x:$B", "x:1"),
        ("ARG TAG\nFROM python:${TAG:-3.13}", "python:3.13"),
        ('FROM "quoted:1"', "quoted:1"),
        ("# a comment\n\n  FROM debian", "debian"),
        ("\ufeffFROM debian", "debian"),
        ("FROM debian\r\n", "debian"),
    ],
)
def test_from_names_the_image(text: str, image: str) -> None:
    assert parse(text).stages[-1].source == Source(image=image)


def test_from_knows_its_platform() -> None:
    assert parse("FROM --platform=$TARGETPLATFORM debian").stages[-1].platform == "linux/amd64"


def test_an_argument_above_from_counts_below_only_where_it_is_named() -> None:
    text = "ARG V=1\nFROM base\nRUN a\nARG V\nRUN b\nARG V=2\nRUN c\n"
    steps = [step for step in plan_last(text).steps if isinstance(step, Run)]
    assert [step.env.get("V") for step in steps] == [None, "1", "2"]


def test_env_stands_above_an_argument_of_its_name() -> None:
    assert run("ENV V=env\nARG V=arg\nRUN a").env["V"] == "env"


def test_arguments_are_seen_by_run_and_not_kept() -> None:
    recipe = plan("ARG V=1\nRUN a")
    assert isinstance(recipe.steps[0], Run)
    assert recipe.steps[0].env["V"] == "1"
    assert "V" not in recipe.result.env


def test_the_architecture_is_known_where_it_is_asked_for() -> None:
    assert run("ARG TARGETARCH\nRUN a").env["TARGETARCH"] == "amd64"


# ENV and variables


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("ENV A=1 B=2", {"A": "1", "B": "2"}),
        ("ENV A=\"one two\" B='three $X'", {"A": "one two", "B": "three $X"}),
        ("ENV A one two  three", {"A": "one two  three"}),
        (r"ENV A=one\ two", {"A": "one two"}),
        ("ENV A=$X.${X}", {"A": "x.x"}),
        (r"ENV A=\$X B=\\b", {"A": "$X", "B": r"\b"}),
        (r'ENV A="\$X \" \n"', {"A": '$X " \\n'}),
        ("ENV X=new A=$X", {"X": "new", "A": "x"}),
        ("ENV A=${X:-d} B=${NO:-d} C=${EMPTY:-d} D=${EMPTY-d}", {"A": "x", "B": "d", "C": "d"}),
        ("ENV A=${X:+o} B=${NO:+o} C=${EMPTY:+o} D=${EMPTY+o}", {"A": "o", "B": "", "D": "o"}),
        ("ENV A=${NO:-${X}y}", {"A": "xy"}),
        ("ENV A=$NO.", {"A": "."}),
        ("ENV A=5$ B=$", {"A": "5$", "B": "$"}),
        ("ENV A=1 \\\n  # between\n\n  B=2", {"A": "1", "B": "2"}),
    ],
)
def test_env_sets_variables(text: str, env: dict[str, str]) -> None:
    found = plan(text, X="x", EMPTY="").result.env
    assert {name: found[name] for name in env} == env


def test_a_base_without_a_path_has_dockers() -> None:
    assert plan("ENV PATH=/opt/bin:$PATH").result.env["PATH"] == f"/opt/bin:{DEFAULT_PATH}"
    assert plan("ENV PATH=/opt/bin:$PATH", PATH="/x").result.env["PATH"] == "/opt/bin:/x"


# RUN


def test_run_is_given_to_the_shell_as_it_stands() -> None:
    assert command("RUN echo \"$X\" ${Y:-1} 'a'", X="x") == "echo \"$X\" ${Y:-1} 'a'"


def test_lines_are_joined_and_comments_between_them_dropped() -> None:
    text = "RUN apt-get update \\\n # why\n   && apt-get install -y \\  \n\n    git"
    assert command(text) == "apt-get update    && apt-get install -y     git"


def test_the_exec_form_needs_no_shell() -> None:
    assert run('RUN ["echo", "a b", "$X"]').argv == ("echo", "a b", "$X")


def test_what_only_looks_like_a_list_is_for_the_shell() -> None:
    assert command("RUN [ -d / ] && true") == "[ -d / ] && true"


def test_shell_changes_what_later_commands_are_given_to() -> None:
    step = run('SHELL ["/bin/bash", "-o", "pipefail", "-c"]\nRUN a | b')
    assert step.argv == ("/bin/bash", "-o", "pipefail", "-c", "a | b")


def test_user_and_workdir_count_from_where_they_stand() -> None:
    recipe = plan("RUN a\nWORKDIR /app\nUSER ada\nWORKDIR sub/../src\nRUN b")
    runs = [(step.cwd, step.user) for step in recipe.steps if isinstance(step, Run)]
    made = [(step.path, step.user) for step in recipe.steps if isinstance(step, MakeDirectory)]
    assert runs == [("/", "root"), ("/app/src", "ada")]
    assert made == [("/app", "root"), ("/app/src", "ada")]
    assert (recipe.result.workdir, recipe.result.user) == ("/app/src", "ada")


def test_a_heredoc_alone_is_the_script() -> None:
    assert command("RUN <<EOF\necho a\n# kept\necho b\nEOF\nUSER x") == "echo a\n# kept\necho b\n"


def test_a_heredoc_with_tabs_is_chomped() -> None:
    assert command("RUN <<-EOF\n\techo a\n\t\tb\n\tEOF") == "echo a\nb\n"


def test_a_heredoc_of_a_command_is_left_to_the_shell() -> None:
    text = "RUN cat <<'A' > /a && cat <<B > /b\n$X\nA\nb\nB"
    assert command(text) == "cat <<'A' > /a && cat <<B > /b\n$X\nA\nb\nB"


def test_a_heredoc_with_an_interpreter_is_run_as_a_file() -> None:
    step = run("RUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF")
    assert step.script == "#!/usr/bin/env python3\nprint(1)\n"


def test_quoted_signs_begin_no_heredoc() -> None:
    assert command("RUN echo '<<EOF' \"a <<EOF b\"") == "echo '<<EOF' \"a <<EOF b\""


def test_a_cache_mount_is_accepted_and_said_to_do_nothing() -> None:
    recipe = plan("RUN --mount=type=cache,target=/var/cache/pip pip install x")
    assert isinstance(recipe.steps[0], Run)
    assert recipe.steps[0].argv[2] == "pip install x"
    assert "Dockerfile:2: RUN --mount=type=cache has no effect" in recipe.notes[0]


def test_another_escape_may_be_chosen() -> None:
    text = "# escape=`\nFROM base\nRUN echo a `\n  b\\\nENV A=c:\\x"
    recipe = plan_last(text)
    assert isinstance(recipe.steps[0], Run)
    assert recipe.steps[0].argv[2] == "echo a   b\\"
    assert recipe.result.env["A"] == "c:\\x"


def test_a_directive_below_a_comment_is_a_comment() -> None:
    assert parse("# hello\n# escape=`\nFROM a").escape == "\\"


# COPY and ADD


@pytest.mark.parametrize(
    ("text", "sources", "target", "is_directory"),
    [
        ("COPY a /x", ("a",), "/x", False),
        ("COPY a b /x/", ("a", "b"), "/x", True),
        ("COPY . .", (".",), "/", True),
        ("WORKDIR /app\nCOPY src/ ./lib/", ("src/",), "/app/lib", True),
        ('COPY ["a b", "/x y/"]', ("a b",), "/x y", True),
        ("COPY $X.txt ${D:-/d}", ("x.txt",), "/d", False),
        ("COPY *.py /x/", ("*.py",), "/x", True),
        ("ADD a /x", ("a",), "/x", False),
        ("COPY --link a /x", ("a",), "/x", False),
    ],
)
def test_copy_names_sources_and_a_target(
    text: str, sources: tuple[str, ...], target: str, is_directory: bool
) -> None:
    step = plan(text, X="x").steps[-1]
    assert isinstance(step, Copy)
    assert (step.sources, step.target, step.is_directory) == (sources, target, is_directory)


def test_copy_knows_owner_and_mode() -> None:
    step = copy("COPY --chown=ada:ada --chmod=755 a /x")
    assert (step.chown, step.chmod) == ("ada:ada", 0o755)


def test_copy_takes_files_from_the_dockerfile_itself() -> None:
    step = copy("COPY <<EOF <<'RAW' a /x/\nhello $X \"quoted\" \\$X\nEOF\n$X\nRAW", X="x")
    assert step.inline == (("EOF", 'hello x "quoted" $X\n'), ("RAW", "$X\n"))
    assert step.sources == ("a",)


# What is refused, and what is without effect


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ONBUILD RUN a", "Dockerfile:2: ONBUILD: is not supported; build it with `--builder"),
        ("RUN --mount=type=secret,id=x a", "RUN: --mount=type=secret,id=x is not supported here"),
        ("RUN --network=none a", "RUN: --network=none is not supported here; build it with"),
        ("ADD --from=x a /b", "ADD: --from is not supported"),
        ("COPY --from=x <<EOF /b\na\nEOF", "COPY: a here-document with --from"),
        ("COPY --exclude=x a /b", "COPY: --exclude is not supported"),
        ("ADD https://example.org/x /x", "ADD: https://example.org/x: URLs are not fetched"),
        ("COPY --chmod=u+x a /b", "COPY: --chmod=u+x; expected octal digits such as 755"),
        ("COPY a b /x", "COPY: several sources, and the target is '/x'; expected it to end in /"),
        ("COPY a", "COPY: 'a'; expected sources and a target"),
        ("ENTRYPOINT", "ENTRYPOINT: expected a command, or a list"),
        ("HEALTHCHECK curl x", "HEALTHCHECK: 'curl x'; expected CMD and a command, or NONE"),
        ("HEALTHCHECK --interval=5 CMD x", "HEALTHCHECK: --interval=5; expected a number, or a"),
        ("HEALTHCHECK --retries=x CMD x", "HEALTHCHECK: --retries=x; expected a number, or a time"),
        ("RUN", "RUN: has no command"),
        ("RUN []", "RUN: has an empty list"),
        ("RUN [1]", "the list contains something other than strings"),
        ("RUN <<EOF\na", "Dockerfile:2: the here-document has no end; expected a line 'EOF'"),
        ("ENV A", "ENV: A has no value; expected A=value"),
        ("ENV A=1 B", "ENV: 'B' has no `=`; expected NAME=value"),
        ('ENV A="x', "a double quote is not closed"),
        ("ENV A='x", "a single quote is not closed"),
        ("ENV A=${X", "is not supported"),
        ("ENV A=${X:-d", "`}` is missing"),
        ("ENV A=${X%y}", "`${X%` is not supported; expected ${X}, ${X:-default}"),
        ("ENV A=${NO:?needed}", "NO: needed"),
        ("ENV 1=2", "'1' is not a name of a variable"),
        ("SHELL bash", "SHELL: 'bash'; expected a list such as"),
        ("USER", "USER: ''; expected the name or number of a user"),
        ("WORKDIR $NO", "WORKDIR: has no directory"),
        ("INSTALL git", "Dockerfile:2: INSTALL: is not a Dockerfile instruction"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_place(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Dockerfile: contains no FROM"),
        ("RUN a\nFROM b", "Dockerfile:1: RUN before FROM"),
        ("FROM a b", "Dockerfile:1: FROM: 'a b'; expected IMAGE or IMAGE AS NAME"),
        ("FROM $NO", "Dockerfile:1: FROM: $NO is empty: give its ARG a default"),
        ("# escape=x\nFROM a", "Dockerfile:1: escape is 'x'; expected \\ or `"),
        ("FROM --isolated a", "Dockerfile:1: FROM: --isolated is not supported"),
        ("ARG\nFROM a", "Dockerfile:1: ARG: has no name"),
    ],
)
def test_a_file_that_begins_wrongly_is_refused(text: str, said: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse(text)
    assert said in str(caught.value)


def test_what_has_no_effect_is_passed_over() -> None:
    recipe = plan('LABEL a=b\nEXPOSE 80\nMAINTAINER me\nSTOPSIGNAL TERM\nCMD ["x"]')
    assert (recipe.steps, recipe.notes) == ((), ())


def test_what_somebody_might_count_on_is_noted() -> None:
    (note,) = plan("VOLUME /x").notes
    assert note.startswith("Dockerfile:2: VOLUME ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RUN a", ()),
        ('ENTRYPOINT ["/start.sh", "$A"]', ("/start.sh", "$A")),
        ("ENTRYPOINT exec start $A", ("/bin/sh", "-c", "exec start $A")),
        ('SHELL ["/bin/bash", "-ec"]\nENTRYPOINT start', ("/bin/bash", "-ec", "start")),
        ("ENTRYPOINT start\nENTRYPOINT []", ()),
    ],
)
def test_an_entrypoint_is_a_setting_of_the_result(text: str, words: tuple[str, ...]) -> None:
    assert plan(text).result.entrypoint == words


def test_a_healthcheck_is_a_setting_of_the_result() -> None:
    assert plan("RUN a").result.healthcheck is None
    assert plan("HEALTHCHECK CMD curl -f x\nHEALTHCHECK NONE").result.healthcheck is None
    usual = plan("HEALTHCHECK CMD curl -f x").result.healthcheck
    assert usual == Healthcheck(command="/bin/sh -c 'curl -f x'", interval_sec=30, retries=3)
    text = 'HEALTHCHECK --interval=1m30s --timeout=500ms --retries=5 CMD ["a b", "c"]'
    assert plan(text).result.healthcheck == Healthcheck(
        command="'a b' c", interval_sec=90, timeout_sec=1, retries=5
    )
