"""Whether the program printed the answer."""

import json
import pathlib

given, expected = (pathlib.Path(path).read_text() for path in ("/app/out", "/tests/expected.txt"))
pathlib.Path("/logs/verifier/reward.txt").write_text(json.dumps(int(given == expected)))
