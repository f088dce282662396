"""`proctor import-prime-eval`: aec-bench's name for `proctor import prime`; no list shows it."""

import copy

from proctor.cli.import_ import prime

command = copy.copy(prime.command)
command.name = "import-prime-eval"
command.epilog = "Example: proctor import-prime-eval EVAL_ID --experiment nightly"
