"""`proctor import-prime-eval`: the name of `proctor import prime` in aec-bench; not listed."""

import copy

from proctor.cli.import_ import prime

command = copy.copy(prime.command)
command.name = "import-prime-eval"
command.epilog = "Example: proctor import-prime-eval EVAL_ID --experiment nightly"
