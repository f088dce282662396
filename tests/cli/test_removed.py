"""Commands, options and values of earlier versions: each answers with one sentence."""

import pytest

from proctor.cli.removed import REMOVED
from tests.cli.programs import Proctor


@pytest.mark.parametrize("typed", REMOVED)
def test_what_was_removed_says_what_serves_instead(proctor: Proctor, typed: str) -> None:
    words = typed.split()
    # An option that every command lost has no command before it.
    ran = proctor(*(words[1:] if words[0] == "proctor" else ["score", *words]))
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err == f"{typed} was removed: {REMOVED[typed]}\n"
