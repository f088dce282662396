"""`proctor import-prime-eval`: the name of `proctor import prime` in aec-bench."""

import copy

from proctor.cli.import_ import prime

command = copy.copy(prime.command)
command.name = "import-prime-eval"
command.help = "Alias of `proctor import prime`, named as in aec-bench."
command.epilog = "Example: proctor import-prime-eval EVAL_ID --experiment nightly"
