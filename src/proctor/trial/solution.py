"""Whether an agent's commands are close to the task's own solution, which it never saw.

It becomes a finding, never another score. The oracle is no matter of this: it runs the solution.
Tasks of several steps are not looked at: their solutions and traces come in parts.
"""

import asyncio

from proctor.files import read_small
from proctor.traces.commands import Likeness, find_commands, find_likeness
from proctor.traces.trace import Trace
from proctor.traces.turn import turns_to_entries
from proctor.trial.finding import FindingCode
from proctor.trial.plan import Plan
from proctor.trial.sitting import Sitting

_ORACLE = "oracle"


async def look_for_solution(sitting: Sitting, trace: Trace) -> bool:
    """Find whether most of the solution comes back in the agent's commands; does it?"""
    plan = sitting.plan
    if plan.config.agent.name == _ORACLE:
        return False
    solution = plan.shared.once("solution", lambda: _read_solution(plan))
    if solution is None:
        return False
    # Beside the event loop: a trace may be long.
    found = await asyncio.to_thread(_compare, trace, solution)
    if found is None or not found.is_close:
        return False
    sitting.add_finding(
        FindingCode.COMMANDS_LIKE_SOLUTION,
        f"the agent's commands hold {found} of the task's own solution",
        share=round(found.share, 3),
        parts=found.parts,
        of=found.of,
    )
    return True


def _compare(trace: Trace, solution: str) -> Likeness | None:
    entries = trace.entries or turns_to_entries(trace.turns)
    return find_likeness(find_commands(entries), solution)


def _read_solution(plan: Plan) -> str | None:
    script = None if plan.task.steps else plan.task.find_solution_script()
    try:
        return None if script is None else read_small(str(script)).decode(errors="replace")
    except OSError:
        return None
