"""What earlier versions had, and what serves instead: a removed word answers with one sentence.

A key is what was typed: a command, an option of a command, or a value of an option. An option that
every command lost has no command before it. The table lasts for one release.
"""

from typing import IO, Any, override

import click

from proctor.cli.stdout import print_stderr

REMOVED: dict[str, str] = {
    "proctor run --task-order": "write `proctor: {task_order: directory}` in the job file (-c).",
    "proctor run --strict-tasks": "write `proctor: {strict_tasks: true}` in the job file (-c).",
    "proctor run --dataset-id": "write `proctor: {dataset_id: NAME@VERSION}` in the job file (-c).",
    "proctor run --adaptation": "write `proctor: {adaptation: {…}}` in the job file (-c).",
    "proctor run --system-prompt": "write `proctor: {system_prompt: FILE}` in the job file (-c).",
    "proctor run --max-tokens": "see trial_limits of the job file in docs/guide/run.md.",
    "proctor run --max-requests": "see trial_limits of the job file in docs/guide/run.md.",
    "proctor run --max-job-tokens": "see job_limits of the job file in docs/guide/run.md.",
    "proctor run --max-job-requests": "see job_limits of the job file in docs/guide/run.md.",
    "proctor dataset show": "`proctor dataset list NAME` shows a dataset's tasks.",
    "proctor dataset verify": "`proctor dataset fetch NAME --verify` checks what is cached.",
    "proctor image remove": "`proctor image prune NAME` removes an image.",
    "proctor image show": "`proctor image list NAME` shows an image.",
    "proctor task shell": "`proctor task try TASK --shell` opens a shell.",
    "proctor resume --on slurm": "examples/slurm.sbatch starts Ray in an allocation.",
    "proctor run --on slurm": "examples/slurm.sbatch starts Ray in an allocation.",
    "proctor resume --print-script": "examples/slurm.sbatch starts Ray in an allocation.",
    "proctor resume --slurm-arg": "examples/slurm.sbatch starts Ray in an allocation.",
    "proctor run --print-script": "examples/slurm.sbatch starts Ray in an allocation.",
    "proctor run --slurm-arg": "examples/slurm.sbatch starts Ray in an allocation.",
    "proctor audit --plan": "`proctor board` compares counted trials with a sealed plan.",
    "proctor plan": "`proctor run` plans all trials before the first, and seals which each was.",
    "proctor ledger withhold --restore": "withheld bytes stay withheld; `proctor ledger verify` "
    "says which, and a copy of the ledger still has them.",
    "proctor case": "`proctor ledger prove` and `proctor ledger claim` hand over trials with their "
    "proof, and `proctor report --site` writes pages.",
    "proctor export --format every-eval-ever": "`--format aec-bench` or `parquet` has every score.",
    "proctor export --format otel": "`--format atif` has the traces, `parquet` times and tokens.",
    "proctor demo-data": "`--sample` reads a stored ledger of made-up runs, such as `proctor view "
    "--sample`.",
    "proctor trace follow": "`proctor show --follow` shows a trace while it is written.",
    "proctor trace summary --compat": "`proctor trace summary` counts by its own rules, "
    "`proctor export --format aec-bench` writes records that aec-bench counts.",
    "proctor trace diff": "`proctor view` compares two traces on its page of two trials.",
    "proctor ledger attest": "`proctor ledger claim` packs every entry of an experiment.",
    "proctor ledger cosign": "keep a checkpoint; `proctor ledger verify --since` compares with it.",
    "proctor ledger prove --leaf-only": "proofs carry the whole entry.",
    "proctor ledger stats": "`proctor ledger list --json` has the size of every trial's evidence.",
    "proctor ledger sync": "commands that read fetch; those that write send what waits first, and "
    "`proctor ledger seal` without arguments sends it.",
    "proctor ledger watch": "run `proctor ledger verify --since CHECKPOINT` from cron.",
    "proctor serve machine": "`proctor serve access list` and `revoke` have the machines.",
    "proctor serve token": "`proctor serve access add`, `list` and `revoke` have the tokens.",
    "proctor serve --witness": "keep checkpoints; `proctor ledger verify --since` compares.",
    "proctor outcome --aggregate": "`proctor report` and `proctor board` aggregate scores.",
    "proctor outcome --attempt": "`proctor outcome --codes` lists what is retried.",
    "proctor outcome --keep": "`proctor report` and `proctor board` count every task.",
    "proctor outcome --run-id": "`proctor score --certificate` writes the operands of a score.",
    "proctor outcome --score-record": "`proctor score --certificate` writes the operands of a "
    "score.",
    "proctor record": "`proctor ledger seal` and `proctor import harbor` make records; "
    "`proctor check` checks them.",
    "proctor import prime --base-url": "set PRIME_API_BASE_URL.",
    "proctor import prime --page-size": "pages have 100 samples.",
    "proctor import prime --retries": "a request is repeated five times.",
    "proctor import prime --timeout": "a request has 60 seconds.",
    "proctor import-prime-eval --base-url": "set PRIME_API_BASE_URL.",
    "proctor import-prime-eval --page-size": "pages have 100 samples.",
    "proctor import-prime-eval --retries": "a request is repeated five times.",
    "proctor import-prime-eval --timeout": "a request has 60 seconds.",
}

# Commands that list sealed trials had an option for each field of a trial.
for _command in ("export", "ledger list", "search", "trace classify", "trace summary"):
    for _field in ("trial", "dataset", "task", "agent", "model", "reward", "status", "since"):
        REMOVED[f"proctor {_command} --{_field}"] = f"write `--where {_field}=…`."
    REMOVED[f"proctor {_command} --harness"] = "write `--where agent=…`."


class RemovedError(click.ClickException):
    """The answer to a word of an earlier version."""

    exit_code = 2

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence alone: the usage of what is left would not help."""
        print_stderr(self.message)


def find_removed(typed: str) -> RemovedError | None:
    """The answer to words such as `proctor case`, if they are no longer there."""
    instead = REMOVED.get(typed)
    return None if instead is None else RemovedError(f"{typed} was removed: {instead}")


def command_path(ctx: click.Context) -> str:
    """The words of a command, beginning with proctor however the program was started."""
    return "proctor" + ctx.command_path.removeprefix(ctx.find_root().command_path)


def explain_removed(error: click.ClickException) -> click.ClickException:
    """The answer to an option or a value that is no longer there, else the error itself."""
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return error
    command = command_path(error.ctx)
    if isinstance(error, click.NoSuchOption):
        option = error.option_name
        return find_removed(f"{command} {option}") or find_removed(option) or error
    if isinstance(error, click.BadParameter) and error.param is not None:
        for typed in REMOVED:
            path, _, value = typed.rpartition(" ")
            # click says only in its message which value it refused.
            if path in [f"{command} {option}" for option in error.param.opts] and (
                repr(value) in error.message
            ):
                return find_removed(typed) or error
    for typed in REMOVED:
        # The same of a command that it does not know.
        path, _, word = typed.rpartition(" ")
        if path == command and error.message.startswith(f"No such command {word!r}"):
            return find_removed(typed) or error
    return error
