"""`python -m benchmarks.ours_board LEDGER`: the board as text, in one process; what it took."""

import contextlib
import io
import json
import sys
import time

from benchmarks.bench import peak_megabytes
from benchmarks.viewer_board import DATASET
from proctor.cli.main import main

words = ["proctor", "board", "--dataset", DATASET, "--ledger", sys.argv[1]]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    sys.argv = words
    main()
print(json.dumps({"seconds": time.process_time(), "megabytes": peak_megabytes()}))
