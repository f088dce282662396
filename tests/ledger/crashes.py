"""What must hold of a ledger after any crash."""

from pathlib import Path

from proctor.ledger.ledger import OpenLedger
from proctor.ledger.sealing import seal
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.verification.verify import verify_ledger
from tests.ledger.ledgers import EXPERIMENT, find_key, forget_index, make_ledger
from tests.ledger.sealer import STEPS, submission_of

TRIALS = tuple(name for step in STEPS for name in step.split(","))


def lay_out(place: Path) -> None:
    """A ledger with one trial, its key, and evidence for the trials to come."""
    make_ledger(place, ["first"]).close()
    forget_index(place / "ledger")
    (place / "evidence").mkdir()
    (place / "evidence" / "shared.txt").write_text("seen by all\n")
    for trial in TRIALS:
        (place / "evidence" / f"{trial}.txt").write_text(f"what {trial} did\n" * 20)


def sealed_in(said: bytes) -> set[str]:
    """The trials that a sealer said it has sealed."""
    words = [line.split()[1] for line in said.decode().splitlines() if line.startswith("sealed ")]
    return {"first", *(name for word in words for name in word.split(","))}


def check_survivor(place: Path, acknowledged: set[str]) -> None:
    """It opens and verifies, has lost nothing, shows nothing half-done, and takes the rest."""
    key = find_key(place)
    verification = verify_ledger(place / "ledger", key=key.verifier)
    assert verification.damage == []
    with OpenLedger.open(place / "ledger", key=key) as ledger:
        ledger.refresh()
        assert acknowledged <= _trials(ledger) <= {"first", *TRIALS}
        submissions = [submission_of(trial, place / "evidence") for trial in TRIALS]
        seal(ledger, submissions)
        ledger.refresh()
        assert _trials(ledger) == {"first", *TRIALS}
    assert verify_ledger(place / "ledger", key=key.verifier).damage == []


def _trials(ledger: OpenLedger) -> set[str]:
    return {row.trial_id for row in ledger.index.trials(TrialFilter(experiment=EXPERIMENT))}
