"""Writes the trajectory of a run to trajectory.jsonl, line by line, so that a kill loses nothing.

What the format has no field for (model, reasoning, tokens and cost of an answer, ids of calls) is
written to metadata, where `proctor trace convert` finds it.
"""

from dataclasses import dataclass
from typing import Any, Final

from proctor.agents.chat.accounting import Charge
from proctor.agents.chat.tool import NAME, Command, Malformed, Result
from proctor.agents.chat.wire import Answer, Call, Object
from proctor.traces.atif.carry import ATIF_KEY
from proctor.traces.commands import CUT, MALFORMED
from proctor.traces.writer import Redactor, TrajectoryWriter

# Characters kept of arguments that cannot be parsed.
_LONGEST_MALFORMED: Final = 2000


@dataclass(frozen=True, slots=True)
class ChatTrajectory:
    """The trajectory of one run."""

    trace: TrajectoryWriter
    redactor: Redactor
    """Applied before a text is cut: half a secret would not be recognized."""

    def begin(self, system: str, instruction: str, agent: Object) -> None:
        """Write the system prompt, the agent's description and the instruction."""
        document = {ATIF_KEY: {"document": {"agent": agent}}}
        self.trace.entry(role="system", content=system, metadata=document)
        self.trace.user(instruction)

    def answer(self, answer: Answer, charge: Charge, seconds: float, n_tries: int) -> None:
        """Write an answer with its duration and cost."""
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
        """Write a call that is about to run, or one that cannot be run."""
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
        """Write a command's result as the model sees it, but redacted."""
        cut = {ATIF_KEY: {"extra": {CUT: result.n_cut}}} if result.n_cut else None
        self.trace.tool_result(
            NAME,
            stdout=result.kept,
            exit_code=result.exit_code,
            duration_ms=result.seconds * 1000,
            metadata=cut,
        )

    def refusal(self, call: Call, malformed: Malformed) -> None:
        """Write the reply to a call that cannot be run."""
        self.trace.tool_result(call.name, stdout=malformed.sentence)

    def user(self, text: str) -> None:
        """Write a message that the loop sends as the user."""
        self.trace.user(text)

    def end(self, sentence: str, **facts: Any) -> None:
        """Write why proctor ended the run."""
        self.trace.entry(
            role="system",
            content=f"proctor ended the run: {sentence}",
            metadata={ATIF_KEY: {"extra": facts}},
        )


def _known(**fields: Any) -> Object:
    return {name: value for name, value in fields.items() if value is not None and value != {}}
