"""An owner who appends by hand with the key: any line, any checkpoint, and no rule in the way.

`Owner` keeps the lines of a log in memory; `write` puts the ledger on the disk. Moves are plain
tuples, so that a failing sequence can be read and pasted.
"""

import base64
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proctor.digest import sha256_hex
from proctor.ledger.entry import (
    FORMAT,
    AnyEntry,
    KeyEntry,
    NoteEntry,
    PlanEntry,
    RescoreEntry,
    ReviewEntry,
    Subject,
    SupersedeEntry,
    TrialEntry,
    TrialScore,
    Withheld,
    WithholdEntry,
    decode_line,
    encode_entry,
)
from proctor.ledger.keys import SigningKey
from proctor.ledger.note import handover_message, sign_checkpoint
from proctor.ledger.tree import Tree, leaf_hash, root_of
from tests.ledger.ledgers import ORIGIN, record_bytes

AT = "2026-11-15T10:00:00.000Z"
EXPERIMENTS = ("exp", "other")
TASKS = ("add", "subtract")
MODELS = ("provider/one", "provider/two")
MISSING = "harbor_reward_missing"
PROFILE = "harbor-0.13.1"
_GONE = b'{"withheld":'
"""How a line begins that was taken out."""

type Move = tuple[Any, ...]
"""What the owner does, and with what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial that the owner sealed."""

    trial: str
    experiment: str = EXPERIMENTS[0]
    task: str = TASKS[0]
    model: str = MODELS[0]
    reward: float | None = 1.0
    exception: str | None = None
    is_certified: bool = True
    """Whether a certificate is sealed with it."""
    is_partial: bool = False
    seq: int = -1

    @property
    def record(self) -> bytes:
        """Its record, as a line of the log has it."""
        data = record_bytes(
            self.trial,
            **{
                "experiment_id": self.experiment,
                "task.task_id": self.task,
                "agent.model": self.model,
                "evaluation.reward": self.reward,
                "evaluation.breakdown": None,
                "completeness": "partial" if self.is_partial else "complete",
            },
        )
        return msgspec.json.format(data, indent=-1)

    @property
    def subject(self) -> Subject:
        """As other entries name it."""
        return Subject(
            experiment_id=self.experiment, trial_id=self.trial, record=sha256_hex(self.record)
        )

    def entry(self) -> TrialEntry:
        """What is sealed of it."""
        rewards = None if self.reward is None else {"reward": float(self.reward).hex()}
        certificate = {
            "task": self.task, "rewards": rewards, "basis": "reward file",
            "exception": self.exception,
        }  # fmt: skip
        return TrialEntry(
            at=AT,
            seq=0,
            record=msgspec.Raw(self.record),
            score=TrialScore(
                profile=PROFILE, certificate=certificate if self.is_certified else None
            ),
            reason_code=MISSING if self.reward is None else None,
        )


def make_test_key(number: int) -> SigningKey:
    """A key that is the same in every run."""
    private = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    return SigningKey(f"example.org/key-{number}", private)


NEVER_SEALED = Trial(trial="never-sealed")


@dataclass(slots=True)
class Owner:
    """A log in the making. Its keys are always the same: so are all its bytes."""

    lines: list[bytes] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    handovers: list[bytes] = field(default_factory=list)
    """Lines of handovers, to be replayed."""
    key: SigningKey = field(default_factory=lambda: make_test_key(1))
    signed: tuple[int, bytes] | None = None
    """Size and root of a checkpoint that is signed anew; None: of all lines."""

    def __post_init__(self) -> None:
        first = KeyEntry(at=AT, seq=0, format=FORMAT, origin=ORIGIN, key=str(self.key.verifier))
        self.append(first)

    def append(self, entry: AnyEntry, *, seq: int | None = None) -> int:
        """Append a line; `seq` is the place that it claims to have."""
        place = len(self.lines)
        claimed = place if seq is None else seq
        self.lines.append(encode_entry(msgspec.structs.replace(entry, at=AT, seq=claimed)))
        return place

    def seal(self, trial: Trial) -> None:
        """Append a trial."""
        self.trials.append(replace(trial, seq=self.append(trial.entry())))

    def find(self, number: int) -> Trial:
        """A trial that was sealed, by any number."""
        return self.trials[number % len(self.trials)] if self.trials else NEVER_SEALED

    def move(self, move: Move) -> None:
        """Do one thing."""
        name, *arguments = move
        getattr(self, f"do_{name}")(*arguments)

    def do_seal(self, experiment: int, task: int, reward: float | None, kind: str) -> None:
        """Seal a new trial."""
        self.seal(
            Trial(
                trial=f"t{len(self.trials)}",
                experiment=EXPERIMENTS[experiment],
                task=TASKS[task],
                model=MODELS[kind == "model"],
                reward=reward,
                exception="AgentTimeoutError" if kind == "errored" else None,
                is_certified=kind != "bare",
                is_partial=kind == "partial",
            )
        )

    def do_keep(self, number: int, reward: float | None) -> None:
        """Seal an earlier attempt, kept beside its trial."""
        former = self.find(number)
        name = f"{former.trial}.attempt-{len(self.trials)}"
        self.seal(replace(former, trial=name, reward=reward))

    def do_duplicate(self, number: int, reward: float | None) -> None:
        """Seal the same identity with another reward."""
        self.seal(replace(self.find(number), reward=reward))

    def do_rename(self, number: int, how: str) -> None:
        """Seal the same record under another id."""
        former = self.find(number)
        other = {
            "case": former.trial.upper(),
            "homoglyph": former.trial.replace("t", "\u0442"),
            "space": f"{former.trial} ",
            "new": f"{former.trial}-again",
        }[how]
        self.seal(replace(former, trial=other))

    def do_withhold(self, number: int, named: str, is_out: bool) -> None:
        """Say that a trial's line is withheld, under its own name or another; take it out."""
        trial = self.find(number)
        place = max(trial.seq, 0)
        subject = {
            "own": trial.subject,
            "nobody": None,
            "another": self.find(number + 1).subject,
            "never": NEVER_SEALED.subject,
        }[named]
        leaf = self._leaf(place)
        self._withhold(subject, place, leaf)
        if is_out and place > 0:
            self._take_out(place, leaf)

    def do_withhold_note(self, named: str, is_out: bool) -> None:
        """Withhold a note, without a name or as a trial that never was."""
        place = self.append(NoteEntry(at=AT, seq=0, text="a long enough remark " * 9, author="eve"))
        leaf = self._leaf(place)
        self._withhold(None if named == "nobody" else NEVER_SEALED.subject, place, leaf)
        if is_out:
            self._take_out(place, leaf)

    def do_withhold_files(self, number: int, is_named: bool) -> None:
        """Withhold evidence that nobody has."""
        subject = self.find(number).subject if is_named else None
        self._withhold(subject, None, None, artifacts=("ab" * 32,))

    def do_supersede(self, number: int, by: int | str) -> None:
        """Let a trial stand in for another."""
        other = {"missing": NEVER_SEALED, "itself": self.find(number)}.get(
            str(by), self.find(by if isinstance(by, int) else 0)
        )
        self.append(
            SupersedeEntry(
                at=AT,
                seq=0,
                subject=self.find(number).subject,
                by=other.subject,
                cause="other",
                reason="because",
                author="eve",
            )
        )

    def do_resign(self, back: int, is_other_root: bool) -> None:
        """Sign another checkpoint: of fewer entries, or of another root."""
        size = max(len(self.lines) - back, 1)
        root = bytes(32) if is_other_root else root_of(self._leaves()[:size])
        self.signed = size, root

    def do_hand_over(self, how: str) -> None:
        """Name another key: the former's, a replayed one, one by a stranger."""
        heir = make_test_key(2 if self.key.verifier == make_test_key(1).verifier else 3)
        if how == "replay" and self.handovers:
            self.lines.append(self.handovers[0])
            return
        if how == "back":
            self.do_hand_over("valid")
            heir = make_test_key(1)
        signer = make_test_key(9) if how == "stranger" else self.key
        text = str(heir.verifier)
        root = root_of(self._leaves()).hex()
        message = handover_message(ORIGIN, text, len(self.lines), root)
        signature = base64.b64encode(signer.sign(message)).decode()
        entry = KeyEntry(
            at=AT, seq=0, format=FORMAT, origin=ORIGIN, key=text, signature=signature, root=root
        )
        self.append(entry)
        self.handovers.append(self.lines[-1])
        self.key = heir

    def do_remark(self, kind: str, number: int | None, is_far: bool) -> None:
        """Say something of a trial, or of one that never was, from a place far away."""
        subject = (NEVER_SEALED if number is None else self.find(number)).subject
        certificate = {"task": "add", "rewards": {"reward": (1.0).hex()}, "basis": "reward file"}
        score = TrialScore(profile=PROFILE, certificate={**certificate, "exception": None})
        entries: dict[str, AnyEntry] = {
            "review": ReviewEntry(at=AT, seq=0, subject=subject, verdict="fail", reviewer="eve"),
            "rescore": RescoreEntry(
                at=AT, seq=0, subject=subject, score=score, reason="mended", author="eve"
            ),
            "note": NoteEntry(at=AT, seq=0, text="a remark", author="eve"),
            "plan": PlanEntry(
                at=AT, seq=0, experiment_id=EXPERIMENTS[0], plan=msgspec.Raw(b"{}"), author="eve"
            ),
        }
        self.append(entries[kind], seq=len(self.lines) + 1000 if is_far else None)

    def _withhold(
        self,
        subject: Subject | None,
        place: int | None,
        leaf: bytes | None,
        artifacts: tuple[str, ...] = (),
    ) -> None:
        self.append(
            WithholdEntry(
                at=AT,
                seq=0,
                subject=subject,
                entry=place,
                leaf=leaf.hex() if leaf is not None else None,
                artifacts=artifacts,
                reason="it had a secret in it",
                author="eve",
            )
        )

    def _leaf(self, place: int) -> bytes:
        return self._leaves()[place]

    def _take_out(self, place: int, leaf: bytes) -> None:
        left = encode_entry(Withheld(withheld=leaf.hex(), seq=place))
        self.lines[place] = left.ljust(len(self.lines[place]))

    def _leaves(self) -> list[bytes]:
        """What the tree is over: of a line that was taken out, what it was."""
        return [
            bytes.fromhex(msgspec.json.decode(line)["withheld"])
            if line.startswith(_GONE)
            else leaf_hash(line)
            for line in self.lines
        ]

    @property
    def size(self) -> int:
        """Lines that are signed."""
        return self.signed[0] if self.signed is not None else len(self.lines)

    def find_present(self) -> list[Trial]:
        """The trials whose lines are signed and there."""
        gone, _ = self.find_gone()
        return [each for each in self.trials if each.seq < self.size and each.seq not in gone]

    def find_gone(self) -> tuple[list[int], list[int]]:
        """Lines that were taken out, and entries that take out evidence without a name."""
        signed = list(enumerate(self.lines[: self.size]))
        gone = [seq for seq, line in signed if line.startswith(_GONE)]
        entries = [decode_line(line, "a line") for _, line in signed]
        nameless = [
            each.seq
            for each in entries
            if isinstance(each, WithholdEntry) and each.subject is None and each.artifacts
        ]
        return gone, nameless

    def write(self, directory: Path) -> Path:
        """Put the ledger on the disk."""
        (directory / "entries").mkdir(parents=True)
        (directory / "artifacts" / "sha256").mkdir(parents=True)
        return self.rewrite(directory)

    def rewrite(self, directory: Path) -> Path:
        """Put the log and its checkpoint where older ones are."""
        data = b"".join(line + b"\n" for line in self.lines)
        (directory / "entries" / "000000.jsonl").write_bytes(data)
        leaves = self._leaves()
        size, root = self.signed or (len(leaves), root_of(leaves))
        signed = sign_checkpoint(ORIGIN, Tree(size, root), self.key.verifier, self.key.sign)
        (directory / "checkpoint").write_bytes(signed.render())
        return directory
