"""What an audit finds: differences, what cannot be shown, and notes.

The first two fail an audit; a note does not.
"""

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """Every kind of finding.

    Differences come first; from NOT_RECOMPUTED on, what cannot be shown; from UNFINISHED_JOB on,
    notes.
    """

    EDITED_REWARD = "edited-reward"
    """The trial result claims other rewards than the reward file holds."""
    MISSING_REWARD_FILE = "missing-reward-file"
    """The trial result claims rewards and no reward file is there."""
    DROPPED_REWARD = "dropped-reward"
    """The reward file holds rewards and the trial result claims none, without an exception."""
    EDITED_STEP_REWARD = "edited-step-reward"
    """A step's result claims other rewards than the step's reward file holds."""
    EDITED_STEP_TOTAL = "edited-step-total"
    """A trial claims what is neither the mean nor the last of its steps, or hides a step."""
    EDITED_EXCEPTION = "edited-exception"
    """The recorded exception, or that there is none, does not fit the files it left."""
    EDITED_CONFIG = "edited-config"
    """A trial's config differs from its config.json, from lock.json, or from what it counts as."""
    RENAMED_TRIAL = "renamed-trial"
    """The directory bears another name than the trial in it."""
    DUPLICATE_TRIAL = "duplicate-trial"
    """Two directories hold the same trial."""
    COPIED_TRIAL = "copied-trial"
    """Two trials ran in the very same microseconds."""
    FOREIGN_TRIAL = "foreign-trial"
    """The trial says that it belongs to another job."""
    UNPLANNED_TRIAL = "unplanned-trial"
    """lock.json has no slot left for the trial."""
    MIXED_TASK = "mixed-task"
    """Trials of one task ran on different contents of it."""
    IMPOSSIBLE_TIME = "impossible-time"
    """A trial or a phase ended before it began, or a phase lies outside its trial."""
    LINKED_FILE = "linked-file"
    """A reward file, a result or a whole trial is a link that leads elsewhere: not followed."""
    TORN_FILE = "torn-file"
    """A file that cannot be read as what it should be."""
    MISSING_RESULT = "missing-result"
    """Trials are there and the job's result.json is not: nothing is published."""
    TRIAL_WITHOUT_DIRECTORY = "trial-without-directory"
    """The job result names a trial that is not there."""
    DIRECTORY_WITHOUT_TRIAL = "directory-without-trial"
    """A finished trial is there that the job result does not count."""
    MISSING_TRIALS = "missing-trials"
    """A job says that it finished with fewer trials than it planned."""
    EDITED_GROUP = "edited-group"
    """The job result has a group that no trial belongs to, or lacks one."""
    EDITED_METRIC = "edited-metric"
    """A published metric is not what the rewards make."""
    EDITED_PASS_AT_K = "edited-pass-at-k"  # noqa: S105 - no password
    """A published pass@k is not what the rewards make."""
    EDITED_REWARD_STATS = "edited-reward-stats"
    """The published rewards by trial are not those of the trials."""
    EDITED_EXCEPTION_STATS = "edited-exception-stats"
    """The published exceptions by trial are not those of the trials."""
    EDITED_COUNTER = "edited-counter"
    """A published count is not the count of what is there."""
    EDITED_USAGE = "edited-usage"
    """Published tokens or cost are not the sum over the trials."""
    CONTRADICTED_ORDER = "contradicted-order"
    """The published lists of trials fit no single order."""

    NOT_RECOMPUTED = "not-recomputed"
    """A published metric that cannot be recomputed: its script was not run, or nothing declares
    which metric it is and it is not the mean."""
    NO_REWARD_FILES = "no-reward-files"
    """Rewards of a custom verifier, which leaves none, or of steps whose files were overwritten."""
    NO_TRIALS = "no-trials"
    """The job has no trial with a result: no number can follow from anything."""

    UNFINISHED_JOB = "unfinished-job"
    UNFINISHED_TRIAL = "unfinished-trial"
    LOST_ATTEMPTS = "lost-attempts"
    """Trials were retried, and the attempts before the last are gone."""
    KEPT_ATTEMPTS = "kept-attempts"
    """Trials were begun again, and what their earlier attempts left lies with them."""
    EARLIER_PLAN = "earlier-plan"
    """A trial whose task, agent or image has changed since: it is there, and in no number."""
    REFUSED_TASK = "refused-task"
    """A task that was asked for and could not be run: it is in no number."""
    INTEGRITY_FINDING = "integrity-finding"
    """What was seen while trials ran, such as a reward that was there before the verifier."""
    ORDER_DEPENDENT = "order-dependent"
    """Last bits that depend on an order of trials which no file records."""
    RESUMED_ORDER = "resumed-order"
    """The order of trials is only known from the published lists."""
    UNUSED_REWARD_FILE = "unused-reward-file"
    IDENTICAL_COMMANDS = "identical-commands"
    """Attempts gave the very same sequence of commands, and a long one."""
    COMMANDS_LIKE_SOLUTION = "commands-like-solution"
    """An agent's commands hold most lines of the task's own solution."""
    INFERRED_METRIC = "inferred-metric"
    """Nothing declares the metric; the published value is the mean of the rewards."""
    NO_METRICS_YET = "no-metrics-yet"
    """A resumed job publishes no metric until its next trial ends."""
    LOST_NUMBER = "lost-number"
    """A reward that is no finite number: harbor writes null and cannot read it back."""
    NO_PLAN = "no-plan"
    """lock.json or config.json is missing: what was planned cannot be checked."""
    LAGGING_RESULT = "lagging-result"
    """A stopped job's result.json lacks trials that ended last, as many as ran at once at most."""

    @property
    def is_difference(self) -> bool:
        """Whether it contradicts what is published."""
        return self in _DIFFERENCES

    @property
    def is_unshown(self) -> bool:
        """Whether it contradicts nothing, but a published number cannot be shown to follow."""
        return not (self.is_difference or self.is_note)

    @property
    def is_note(self) -> bool:
        """Whether it leaves the published numbers standing."""
        return self in _NOTES


_ALL = list(Kind)
_DIFFERENCES = frozenset(_ALL[: _ALL.index(Kind.NOT_RECOMPUTED)])
_NOTES = frozenset(_ALL[_ALL.index(Kind.UNFINISHED_JOB) :])


class Finding(msgspec.Struct, frozen=True):
    """One thing an audit found."""

    kind: Kind
    path: str
    """File or directory it was found in."""
    message: str
    found: str = ""
    """The value that is there, where there is one."""
    expected: str = ""
    """The value that the evidence gives, where there is one."""
