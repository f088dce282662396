"""The kinds of findings of an audit: differences, unconfirmed numbers, and notes.

Differences and unconfirmed numbers fail an audit; notes do not.
"""

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """Every kind of finding.

    Differences come first; from NOT_RECOMPUTED on, unconfirmed numbers; from UNFINISHED_JOB on,
    notes.
    """

    EDITED_REWARD = "edited-reward"
    """The trial result claims other rewards than the reward file has."""
    MISSING_REWARD_FILE = "missing-reward-file"
    """The trial result claims rewards, but there is no reward file."""
    DROPPED_REWARD = "dropped-reward"
    """The reward file has rewards, but the trial result claims none, without an exception."""
    EDITED_STEP_REWARD = "edited-step-reward"
    """A step's result claims other rewards than the step's reward file has."""
    EDITED_STEP_TOTAL = "edited-step-total"
    """A trial claims neither the mean nor the last of its steps, or hides a step."""
    EDITED_EXCEPTION = "edited-exception"
    """The recorded exception, or its absence, contradicts the files."""
    EDITED_RECORD = "edited-record"
    """A trial's record.json has other rewards, ids or errors than its other files."""
    EDITED_CONFIG = "edited-config"
    """A trial's config differs from its config.json, from lock.json, or from how it is counted."""
    RENAMED_TRIAL = "renamed-trial"
    """The directory has another name than the trial in it."""
    DUPLICATE_TRIAL = "duplicate-trial"
    """Two directories contain the same trial."""
    COPIED_TRIAL = "copied-trial"
    """Two trials have identical timestamps, to the microsecond."""
    FOREIGN_TRIAL = "foreign-trial"
    """The trial claims to belong to another job."""
    UNPLANNED_TRIAL = "unplanned-trial"
    """lock.json has no slot left for the trial."""
    MIXED_TASK = "mixed-task"
    """Trials of one task ran on different versions of it."""
    IMPOSSIBLE_TIME = "impossible-time"
    """A trial or phase ended before it started, a phase is outside its trial, or a trial more than
    a day outside its job."""
    LINKED_FILE = "linked-file"
    """A reward file, a result or a whole trial is a link that leads elsewhere; not followed."""
    DUPLICATE_KEY = "duplicate-key"
    """A key occurs twice in one object: which value a reader sees depends on its parser."""
    TORN_FILE = "torn-file"
    """A file is unreadable, or invalid."""
    MISSING_RESULT = "missing-result"
    """There are trials but no result.json of the job: nothing is published."""
    TRIAL_WITHOUT_DIRECTORY = "trial-without-directory"
    """The job result names a trial that does not exist."""
    DIRECTORY_WITHOUT_TRIAL = "directory-without-trial"
    """There is a finished trial that the job result does not count."""
    MISSING_TRIALS = "missing-trials"
    """A finished job has fewer trials than it planned."""
    EDITED_GROUP = "edited-group"
    """The job result has a group without trials, or lacks one."""
    EDITED_METRIC = "edited-metric"
    """A published metric does not follow from the rewards."""
    EDITED_PASS_AT_K = "edited-pass-at-k"  # noqa: S105 - no password
    """A published pass@k does not follow from the rewards."""
    EDITED_REWARD_STATS = "edited-reward-stats"
    """The published rewards by trial differ from those of the trials."""
    EDITED_EXCEPTION_STATS = "edited-exception-stats"
    """The published exceptions by trial differ from those of the trials."""
    EDITED_COUNTER = "edited-counter"
    """A published count is wrong."""
    EDITED_USAGE = "edited-usage"
    """Published tokens or cost are not the sum over the trials."""
    CONTRADICTED_ORDER = "contradicted-order"
    """The published lists of trials contradict each other's order."""

    NOT_RECOMPUTED = "not-recomputed"
    """A published metric cannot be recomputed: its script was not run, or no file declares which
    metric it is and it is not the mean."""
    NO_REWARD_FILES = "no-reward-files"
    """Rewards of a custom verifier, which leaves no files, or of steps with overwritten files."""
    NO_TRIALS = "no-trials"
    """The job has no trial with a result, so no number can be confirmed."""

    UNFINISHED_JOB = "unfinished-job"
    UNFINISHED_TRIAL = "unfinished-trial"
    LOST_ATTEMPTS = "lost-attempts"
    """Trials were retried, and earlier attempts were deleted."""
    KEPT_ATTEMPTS = "kept-attempts"
    """Trials were restarted, and the files of earlier attempts are kept with them."""
    EARLIER_PLAN = "earlier-plan"
    """A trial whose task, agent or image has changed since; kept, but in no number."""
    REFUSED_TASK = "refused-task"
    """A requested task that could not be run; in no number."""
    INTEGRITY_FINDING = "integrity-finding"
    """A finding from while the trials ran, such as a reward before the verifier started."""
    ORDER_DEPENDENT = "order-dependent"
    """The last bits depend on the order of trials, which no file records."""
    RESUMED_ORDER = "resumed-order"
    """The order of trials is known only from the published lists."""
    UNUSED_REWARD_FILE = "unused-reward-file"
    IDENTICAL_COMMANDS = "identical-commands"
    """Attempts gave the same long sequence of commands."""
    COMMANDS_LIKE_SOLUTION = "commands-like-solution"
    """An agent's commands contain most lines of the task's own solution."""
    INFERRED_METRIC = "inferred-metric"
    """No file declares the metric; the published value is the mean of the rewards."""
    NO_METRICS_YET = "no-metrics-yet"
    """A resumed job publishes no metric until its next trial ends."""
    OVERLAPPING_TRIALS = "overlapping-trials"
    """More trials ran at once than lock.json allows."""
    FAILED_OUTPUT = "failed-output"
    """A trial has a full reward, but its verifier's output reports failed tests."""
    ODD_USAGE = "odd-usage"
    """Impossible tokens or cost; treated as unknown, and in no sum."""
    LOST_NUMBER = "lost-number"
    """A reward that is not finite: harbor writes null and cannot read it back."""
    NO_PLAN = "no-plan"
    """lock.json or config.json is missing: the plan cannot be checked."""
    LAGGING_RESULT = "lagging-result"
    """A stopped job's result.json lacks the last trials, at most as many as ran at once."""

    @property
    def is_difference(self) -> bool:
        """Whether it contradicts what is published."""
        return self in _DIFFERENCES

    @property
    def is_derived(self) -> bool:
        """Whether it is about a number of the job result, which follows from the trials.

        If the trials themselves differ, such a difference is a consequence.
        """
        return self in _DERIVED

    @property
    def is_unshown(self) -> bool:
        """Whether it contradicts nothing, but leaves a published number unconfirmed."""
        return not (self.is_difference or self.is_note)

    @property
    def is_note(self) -> bool:
        """Whether it does not affect the published numbers."""
        return self in _NOTES


_ALL = list(Kind)
_DIFFERENCES = frozenset(_ALL[: _ALL.index(Kind.NOT_RECOMPUTED)])
_DERIVED = frozenset(_ALL[_ALL.index(Kind.EDITED_GROUP) : _ALL.index(Kind.NOT_RECOMPUTED)])
_NOTES = frozenset(_ALL[_ALL.index(Kind.UNFINISHED_JOB) :])


class Finding(msgspec.Struct, frozen=True):
    """One finding of an audit."""

    kind: Kind
    path: str
    """The file or directory concerned."""
    message: str
    found: str = ""
    """The value found, if any."""
    expected: str = ""
    """The value that follows from the evidence, if any."""
