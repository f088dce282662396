import json
import pathlib

ok = pathlib.Path("/tmp/out").read_text() == pathlib.Path("/tests/expected.txt").read_text()
pathlib.Path("/logs/verifier/reward.txt").write_text(json.dumps(int(ok)))
