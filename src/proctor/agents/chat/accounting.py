"""Tokens, money and time of one run, summed over its answers.

If one answer does not report a figure, the sum is unknown: null, never 0. The cost of an answer is
the amount that the endpoint reports, or else its tokens at the listed prices of the model that
answered. Requests without an answer are counted; their cost is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from proctor.agents.chat.answers import Answer
from proctor.errors import RecordError
from proctor.record.cost import (
    CostBasis,
    Spending,
    Spent,
    Usage,
    describe_basis,
    find_cost,
    merge_bases,
    sum_usage,
    unknown_cost,
)
from proctor.reward.number import sum_counts
from proctor.sentence import count_of
from proctor.trial.agent import AgentContext


@dataclass(frozen=True, slots=True)
class Charge:
    """Tokens and cost of one answer."""

    spent: Spent
    basis: CostBasis


@dataclass(slots=True)
class Account:
    """Tokens, cost and time of a run so far."""

    asked_model: str
    charges: list[Charge] = field(default_factory=list)
    models: dict[str, None] = field(default_factory=dict)
    """Models that answered, as named by the endpoint, in the order of their first answer."""
    n_retries: int = 0
    n_commands: int = 0
    n_malformed: int = 0
    """Number of unusable answers and calls."""
    model_seconds: float = 0.0
    """Wall time spent waiting for the model, retries included."""
    command_seconds: float = 0.0
    """Wall time spent waiting for commands."""

    @property
    def usage(self) -> Usage:
        """Sum of the tokens of all answers."""
        return sum_usage([charge.spent.usage for charge in self.charges])

    @property
    def tokens(self) -> int | None:
        """Input and output tokens of all answers; None if one did not report them."""
        return sum_counts([self.usage.input, self.usage.output])

    @property
    def basis(self) -> CostBasis:
        """Cost of all answers, and where the amount comes from."""
        if not self.charges:
            return unknown_cost("the model has not answered")
        basis = merge_bases([charge.basis for charge in self.charges])
        if not self.n_retries or basis.amount_usd is None:
            return basis
        failed = count_of(self.n_retries, "request")
        note = f"{failed} got no answer; their cost, if any, is not included"
        return msgspec.structs.replace(basis, notes=(*basis.notes, note))

    def add(self, answer: Answer, when: datetime) -> Charge:
        """Add the tokens and cost of an answer."""
        if answer.model:
            self.models[answer.model] = None
        charge = Charge(answer.spent, self._price(answer, when))
        self.charges.append(charge)
        return charge

    def _price(self, answer: Answer, when: datetime) -> CostBasis:
        spent = answer.spent
        if spent.problem is not None and spent.cost_usd is None:
            return unknown_cost(spent.problem)
        # A price for the exact name wins; if there is none, the last basis says why.
        basis = unknown_cost("the model has no name")
        for name in find_names(answer.model, self.asked_model):
            spending = Spending(usages=(spent.usage,), model=name, is_per_call=True)
            try:
                basis = find_cost([spending], when, reported_usd=spent.cost_usd)
            except RecordError as error:
                basis = unknown_cost(str(error))
            if basis.amount_usd is not None:
                break
        return basis

    def describe(self) -> dict[str, object]:
        """Return what harbor's AgentContext has no fields for, as trial metadata."""
        return {
            "models": list(self.models),
            "turns": len(self.charges),
            "commands": self.n_commands,
            "malformed": self.n_malformed,
            "retries": self.n_retries,
            "reasoning_tokens": sum_counts([charge.spent.reasoning for charge in self.charges]),
            "model_seconds": round(self.model_seconds, 3),
            "command_seconds": round(self.command_seconds, 3),
            "cost_basis": describe_basis(self.basis),
        }

    def fill(self, context: AgentContext) -> None:
        """Fill in harbor's fields for tokens and cost."""
        if self.charges:
            usage = self.usage
            context.n_input_tokens, context.n_cache_tokens = usage.input, usage.cache_read
            context.n_output_tokens, context.cost_usd = usage.output, self.basis.amount_usd


def find_names(reported: str | None, asked: str) -> Sequence[str]:
    """Return the model names under which to look for a price, most specific first.

    Endpoints often report the model without its provider; the provider of -m is added then.
    """
    if not reported:
        return (asked,)
    provider, slash, _ = asked.partition("/")
    return (f"{provider}/{reported}", reported) if slash and "/" not in reported else (reported,)
