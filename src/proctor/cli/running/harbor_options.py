"""Options of `harbor run` and `harbor job resume` that proctor does not have.

Each is refused with what to use instead; click alone would suggest an unrelated option. The list is
complete for harbor 0.13.1 and 0.25.0: a test compares it with the commands of the real harbor.
"""

from collections.abc import Mapping
from typing import ClassVar

import click

from proctor.cli.running.sections import SectionedCommand

_NO_HUB = "It does not contact harbor's servers; publish results with `proctor ledger publish`."
_NOT_HOSTED = "It runs nothing on harbor's servers; --on runs trials on a cluster."
_AFTERWARDS = "Run `proctor export` after the job."
_ALL_LOGS = "All logs are kept."

# What to use instead, and the options that it is about.
_RUN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Pass --model-endpoint PROVIDER=URL.", ("--base-url",)),
    ("Set the variable of the model's provider, such as OPENAI_API_KEY.", ("--api-key-name",)),
    ("Pass --ak reasoning_effort=LEVEL to an agent that takes it.", ("--effort",)),
    ("Limit the trials that run at once with -n.", ("--n-concurrent-agents",)),
    (
        "Write the text to a file and pass --extra-instruction-path FILE.",
        ("--extra-instruction",),
    ),
    ("Pass -d git+URL.", ("--repo",)),
    ("Use --dry-run to see what would be run.", ("--print-config",)),
    ("Use `proctor resume JOB` to run what a job lacks.", ("--diff",)),
    ("Use `proctor view JOB` to watch a job while it runs.", ("--stream", "--no-stream")),
    (_ALL_LOGS, ("--agent-include-logs", "--agent-exclude-logs")),
    (_ALL_LOGS, ("--verifier-include-logs", "--verifier-exclude-logs")),
    (_AFTERWARDS, ("--export-traces", "--no-export-traces", "--export-episodes")),
    (_AFTERWARDS, ("--export-sharegpt", "--no-export-sharegpt", "--export-repo")),
    (_AFTERWARDS, ("--export-push", "--no-export-push")),
    (_AFTERWARDS, ("--export-instruction-metadata", "--no-export-instruction-metadata")),
    (_AFTERWARDS, ("--export-verifier-metadata", "--no-export-verifier-metadata")),
    (_NO_HUB, ("--upload", "--public", "--private", "--org")),
    (_NO_HUB, ("--share", "--share-user", "--share-org")),
    (_NOT_HOSTED, ("--launch", "--use-static-ip", "--credential-mode", "--no-secrets")),
    (_NOT_HOSTED, ("--one-off-secret", "--stored-secret", "--registry-secret")),
    ("", ("--api-format", "--skip-model-parsing-and-provider-mapping", "--sm")),
    ("", ("--skip-credential-checks", "--install-only", "--allow-verifier-host")),
    ("", ("--load-trajectory", "--resume-trajectory")),
    ("", ("--user-agent", "--user-model", "--uk", "--user-agent-kwarg")),
    ("", ("--user-persona-path", "--user-prompt-template-path")),
    ("", ("--bridge", "--bridge-prompt-path", "--bk", "--bridge-kwarg")),
    ("", ("--mounts", "--mounts-json", "--extra-docker-compose")),
    ("", ("--plugin", "--pk", "--plugin-kwarg")),
)
_RESUME: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Write `proctor resume JOB`.", ("-p", "--job-path")),
    ("Pass --also TYPE.", ("--filter-error-type",)),
    ("It asks no questions.", ("-y", "--yes")),
    (_NO_HUB, ("--upload", "--public", "--private", "--org")),
    (_NO_HUB, ("--share", "--share-user", "--share-org")),
    ("", ("--plugin", "--pk", "--plugin-kwarg")),
)
# harbor 0.25 calls it --share.
_RENAMED = "--share-org"
RUN_OPTIONS = {option: instead for instead, options in _RUN for option in options}
"""Options of `harbor run`, each with what to use instead; empty: nothing."""
RESUME_OPTIONS = {option: instead for instead, options in _RESUME for option in options}
"""Likewise, of `harbor job resume`."""


class _HarborsCommand(click.Command):
    """A command that knows which options only harbor's command of that name has."""

    refused: ClassVar[Mapping[str, str]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; an option that only harbor has is refused as such."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _explain(error, self.refused) from error


class RunCommand(_HarborsCommand, SectionedCommand):
    """`proctor run`."""

    refused = RUN_OPTIONS


class ResumeCommand(_HarborsCommand):
    """`proctor resume`."""

    refused = RESUME_OPTIONS


def _explain(error: click.NoSuchOption, options: Mapping[str, str]) -> click.UsageError:
    """The error to raise: about an option of harbor, or the one that click raised."""
    name = error.option_name
    if name not in options:
        return error
    release = "0.13" if name == _RENAMED else "0.25"
    sentence = f"{name} is an option of harbor {release} that proctor does not have."
    return click.UsageError(f"{sentence} {options[name]}".rstrip(), error.ctx)
