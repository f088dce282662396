"""What happened, told to trajectory.jsonl as it happens. A line that is told survives any kill.

What the format has no field for stands in metadata where `proctor trace convert` finds it: model,
reasoning, tokens and money of an answer, ids of calls. Nothing is read here.
"""

from dataclasses import dataclass
from typing import Any, Final

from proctor.agents.chat.accounting import Charge
from proctor.agents.chat.tool import NAME, Command, Malformed, Result
from proctor.agents.chat.wire import Answer, Call, Object
from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.commands import CUT, MALFORMED
from proctor.traces.writer import Redactor, TrajectoryWriter

_LONGEST_MALFORMED: Final = 2000
"""Characters that are kept of arguments that cannot be read."""


@dataclass(frozen=True, slots=True)
class Story:
    """The trajectory of one run."""

    trace: TrajectoryWriter
    redactor: Redactor
    """For what is cut: half a secret would not be known as one."""

    def begin(self, system: str, instruction: str, agent: Object) -> None:
        """What the model is told, by which agent."""
        document = {ATIF_KEY: {"document": {"agent": agent}}}
        self.trace.entry(role="system", content=system, metadata=document)
        self.trace.user(instruction)

    def answer(self, answer: Answer, charge: Charge, seconds: float, n_tries: int) -> None:
        """What the model said, how long it took and what it cost."""
        self.trace.new_step()
        spent, usage = charge.spent, charge.spent.usage
        metrics = {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "cached_tokens": usage.cache_read,
            "cost_usd": charge.basis.amount_usd,
            "extra": _known(
                reasoning_tokens=spent.reasoning,
                cost_basis=charge.basis.kind,
                refused=spent.problem,
            ),
        }
        carried = _known(
            model_name=answer.model,
            reasoning_content=answer.reasoning,
            metrics=_known(**metrics),
            llm_call_count=n_tries,
            extra=_known(finish_reason=answer.finish_reason),
        )
        self.trace.entry(
            role="assistant",
            content=answer.text,
            duration_ms=round(seconds * 1000),
            metadata={ATIF_KEY: carried},
        )

    def call(self, call: Call, parsed: Command | Malformed) -> None:
        """A tool that is about to run, or a call that cannot be."""
        carried: Object = {"tool_call_id": call.id}
        fields: Object = {"command": ""}
        if isinstance(parsed, Command):
            fields = {"command": parsed.text, "arguments": parsed.arguments}
        else:
            kept = self.redactor.redact_text(call.arguments)[:_LONGEST_MALFORMED]
            carried["extra"] = {MALFORMED: kept}
        self.trace.entry(
            role="tool_call", tool_name=call.name, metadata={ATIF_KEY: carried}, **fields
        )

    def result(self, result: Result) -> None:
        """What came of a command, as the model is shown it, secrets apart."""
        cut = {ATIF_KEY: {"extra": {CUT: result.n_cut}}} if result.n_cut else None
        self.trace.tool_result(
            NAME,
            stdout=result.kept,
            exit_code=result.exit_code,
            duration_ms=result.seconds * 1000,
            metadata=cut,
        )

    def refusal(self, call: Call, malformed: Malformed) -> None:
        """What the model is told of a call that cannot be run."""
        self.trace.tool_result(call.name, stdout=malformed.sentence)

    def user(self, text: str) -> None:
        """What the loop says to the model in the user's place."""
        self.trace.user(text)

    def end(self, sentence: str, **facts: Any) -> None:
        """Why the run ended, where it was not the model that ended it."""
        self.trace.entry(
            role="system",
            content=f"proctor ended the run: {sentence}",
            metadata={ATIF_KEY: {"extra": facts}},
        )


def _known(**fields: Any) -> Object:
    return {name: value for name, value in fields.items() if value is not None and value != {}}
