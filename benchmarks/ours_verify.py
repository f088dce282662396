"""`python -m benchmarks.ours_verify LEDGER`: verify it in one process; the memory it took."""

import json
import sys

from benchmarks.bench import peak_megabytes
from proctor.ledger.verification.verify import verify_ledger

verify_ledger(sys.argv[1])
print(json.dumps({"megabytes": peak_megabytes()}))
