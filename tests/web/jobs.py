"""Jobs that change while somebody looks at them."""

import json
import shutil
from pathlib import Path

from tests.web.subjects import JOBS

JOB = "04-binary-scripted-k5"


class GrowingJob:
    """A job that is being run: its trials come one by one, its result at the end."""

    def __init__(self, directory: Path, name: str = JOB) -> None:
        self.source = JOBS / name
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self.trials = sorted(each.name for each in self.source.iterdir() if each.is_dir())
        self._result = json.loads((self.source / "result.json").read_text())
        shutil.copy(self.source / "config.json", self.directory)
        self.write_result(is_finished=False)

    def write_result(self, *, is_finished: bool) -> None:
        """The job's own result, as it is while it runs or at its end."""
        result = dict(self._result)
        if not is_finished:
            result["finished_at"] = None
        partial = self.directory / ".result.json"
        partial.write_text(json.dumps(result))
        partial.rename(self.directory / "result.json")

    def begin(self, number: int) -> Path:
        """A trial that has no result yet."""
        place = self.directory / self.trials[number]
        place.mkdir()
        shutil.copy(self.source / place.name / "config.json", place)
        return place

    def end(self, number: int) -> None:
        """A trial that ended."""
        name = self.trials[number]
        shutil.copytree(self.source / name, self.directory / name, dirs_exist_ok=True)
