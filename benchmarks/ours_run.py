"""A command of proctor's in a process that tells what it took; prints it as one JSON object.

python -m benchmarks.ours_run run …
"""

import contextlib
import io
import json
import sys
import time

from benchmarks.bench import peak_megabytes
from proctor.cli.main import main

if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                sys.exit(f"{printed.getvalue()}\nexit {ended.code}")
    print(json.dumps({"cpu_seconds": time.process_time(), "megabytes": peak_megabytes()}))
