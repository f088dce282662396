"""`proctor ledger publish`: a ledger as static files, in a bucket or a directory."""

import os
import re
from pathlib import Path

import click
import msgspec

from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.ledger.progress import make_progress
from proctor.cli.output import json_option, print_json, print_line
from proctor.errors import InputError
from proctor.ledger.publishing import DirectoryTarget, Target, publish
from proctor.ledger.remote.client import S3
from proctor.ledger.remote.mirror import load_bucket
from proctor.sentence import count_of, render_size

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@click.command("publish")
@click.argument("target")
@ledger_option
@click.option("--all", "is_all", is_flag=True, help="Send every file, even those already there.")
@json_option
def command(target: str, directory: str | None, is_all: bool, as_json: bool) -> int:
    """Publish a ledger as static files to TARGET: s3://BUCKET/PREFIX or a directory.

    The files are the checkpoint, hash tiles, entries and evidence, under the same paths as on
    `proctor serve`. Anyone who can read them can read and verify the ledger with `--ledger
    s3://BUCKET/PREFIX`, or with `--ledger https://HOST/PATH` where a web server serves them.

    Only what is new is sent, and the checkpoint last. A published ledger is never replaced by
    another one, by a fork, or by an older copy. Withheld lines and evidence are removed from what
    is published.

    Buckets need proctor[s3], and conditional writes: a store that ignores them is refused. The
    variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION hold the
    credentials, AWS_ENDPOINT_URL the address of a store that is not AWS.

    Example: proctor ledger publish s3://results/nightly
    """
    with open_ledger(directory) as ledger:
        if target.startswith(S3):
            place: Target = load_bucket().Bucket(target, os.environ)
        elif _SCHEME.match(target):
            raise InputError(f"{target}: expected s3://BUCKET/PREFIX or a directory")
        else:
            place = DirectoryTarget(Path(target))
        done = publish(ledger, place, is_all=is_all, progress=make_progress())
    if as_json:
        print_json(msgspec.to_builtins(done))
        return 0
    entries = count_of(done.size, "entry", "entries")
    if not done.files and not done.removed:
        print_line(f"{done.url}: up to date, {entries}")
        return 0
    sent = f"{count_of(done.files, 'file')} sent, {render_size(done.n_bytes)}"
    print_line(f"{done.url}: {entries} published, {done.size - done.since:,} of them new; {sent}")
    if done.renewed:
        what = count_of(done.renewed, "bundle")
        print_line(f"withheld lines: {what} of entries replaced")
    if done.removed:
        print_line(f"withheld evidence: {count_of(done.removed, 'artifact')} removed")
    return 0
