"""The plan of each trial of a job, made when the trial begins.

Attempts at one task by one agent share what they have in common, so that it is made once.
"""

from collections import OrderedDict
from dataclasses import replace

from proctor.harbor.configs import TrialConfig
from proctor.job.planning import JobPlan
from proctor.job.resume import Decision
from proctor.job.slots import Slot, trial_config
from proctor.trial.plan import Plan, RecordWish, Shared

type _Known = tuple[TrialConfig, RecordWish, Shared]

_CAPACITY = 512
"""Tasks that are kept in mind at once; of a larger job nothing is, since tasks come in turns."""


class TrialPlanner:
    """Makes the plans of one job's trials."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._known: OrderedDict[tuple[int, int], _Known] = OrderedDict()

    def make_plan(self, decision: Decision, attempt: int) -> Plan:
        """The plan of a slot's trial, given the number of the attempt."""
        slot, prepared = decision.slot, self._plan.prepared
        config, record, shared = self._find_known(decision)
        return Plan(
            config=config.model_copy(update={"trial_name": decision.trial}),
            task=slot.planned.task,
            digests=slot.planned.digests,
            record=record,
            is_harbor_compatible=prepared.settings.verifier_compat is not None,
            verify_again=prepared.settings.verify_again,
            clean_room=prepared.settings.clean_room,
            attempt=attempt,
            shared=shared,
        )

    def _find_known(self, decision: Decision) -> _Known:
        slot, plan = decision.slot, self._plan
        # The plan holds both for as long as the job runs: their identities are names.
        key = id(slot.planned), id(slot.agent)
        known = self._known.get(key)
        if known is None:
            config = trial_config(slot, decision.trial, plan.trials_dir, plan.job_id)
            known = self._known[key] = config, self._make_record(slot), Shared()
            if len(self._known) > _CAPACITY:
                self._known.popitem(last=False)
        return known

    def _make_record(self, slot: Slot) -> RecordWish:
        records = self._plan.prepared.records
        wish = records[slot.index % len(records)]
        # What the person says goes before what the dataset is called.
        return replace(wish, dataset_id=wish.dataset_id or slot.planned.dataset_id)
