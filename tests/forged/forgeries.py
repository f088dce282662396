"""The pack: every forgery, with a name and a sentence for the page."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.forged import directory_forgeries as directory
from tests.forged import ledger_forgeries as ledger
from tests.forged import owner_forgeries as owner
from tests.forged import stranger_forgeries as stranger
from tests.forged.honest import HandedIn


@dataclass(frozen=True)
class Forgery:
    """One way to forge."""

    name: str
    does: str
    """For the page."""
    forge: Callable[[HandedIn], object]


FORGERIES = [
    Forgery("edited-trial-reward", "a failed trial's result claims 1", directory.edit_trial_reward),
    Forgery("edited-mean", "the job's published mean is 1", directory.edit_mean),
    Forgery(
        "edited-reward-file",
        "reward.txt, the trial's result and the job's result say 1; the record was forgotten",
        directory.edit_reward_file_and_result,
    ),
    Forgery(
        "edited-everywhere",
        "the same, and the record too: the directory is consistent",
        directory.edit_reward_everywhere,
    ),
    Forgery(
        "dropped-trials",
        "failed trials are deleted, the numbers made to fit",
        directory.drop_failures,
    ),
    Forgery(
        "dropped-task",
        "the failed task is gone from plan, disk and numbers",
        directory.drop_failures_and_plan,
    ),
    Forgery(
        "picked-attempts",
        "an attempt at each task is gone from plan, disk, settings and numbers",
        directory.drop_attempts_and_plan,
    ),
    Forgery(
        "relabelled-results",
        "results name another model than settings",
        directory.relabel_model_in_results,
    ),
    Forgery("relabelled-model", "every file names another model", directory.relabel_model),
    Forgery("relabelled-agent", "results name another agent", directory.relabel_agent_in_results),
    Forgery(
        "invented-trace",
        "edited everywhere, with a trace written by hand that does not solve the task",
        directory.invent_trace,
    ),
    Forgery(
        "invented-solution",
        "edited everywhere, with a trace written by hand whose commands solve the task",
        directory.invent_trace_that_solves,
    ),
    Forgery(
        "empty-trace",
        "edited everywhere, with a trace in which nothing is done",
        directory.empty_trace,
    ),
    Forgery("copied-trace", "a trial has the trace of another attempt", directory.copy_trace),
    Forgery(
        "copied-trace-reset",
        "the same with its clock set seven milliseconds on",
        directory.copy_trace_and_set_clock,
    ),
    Forgery(
        "reward-alone",
        "edited everywhere, in a trial whose verifier left no output",
        directory.write_reward_alone,
    ),
    Forgery("more-time", "every trial had four times the time", directory.multiply_timeouts),
    Forgery(
        "more-time-hidden",
        "the same; settings of trials were put back, the plan was forgotten",
        directory.multiply_timeouts_and_hide,
    ),
    Forgery(
        "more-resources", "every trial had 16 processors and 64 GB", directory.override_resources
    ),
    Forgery(
        "duplicated-best",
        "a copy of a pass replaces another attempt, an hour later",
        directory.duplicate_best,
    ),
    Forgery("easier-task", "an easier version of a task was run", directory.swap_task),
    Forgery(
        "easier-task-hidden",
        "the same; digests of the task were put back, those of its tests forgotten",
        directory.swap_task_and_hide,
    ),
    Forgery("unpinned-image", "records name the image by a tag", directory.unpin_image),
    Forgery("moved-image", "records name another image than was used", directory.move_image),
    Forgery("backdated", "the times of trials are a month earlier", directory.backdate),
    Forgery("old-trial", "a trial is 400 days older than its job", directory.age_by_a_year),
    Forgery(
        "linked-reward",
        "edited everywhere; the reward file is a link to one outside the job",
        directory.link_reward,
    ),
    Forgery(
        "hidden-metric",
        "the published number is that of a metric script that is not there",
        directory.hide_metric,
    ),
    Forgery("claimed-twice", "a result has 0 and 1 under one key", directory.claim_twice),
    Forgery("removed-finding", "integrity findings are deleted", directory.remove_finding),
    Forgery("edited-entry", "rewards are edited in the ledger's log", ledger.edit_entry),
    Forgery(
        "cut-ledger",
        "a failed trial is gone from plan, disk and numbers, and the log is cut before it",
        ledger.cut_ledger,
    ),
    Forgery(
        "withheld-failure",
        "a failed trial is withheld from the ledger, and gone from plan, disk and numbers",
        ledger.withhold_failure,
    ),
    Forgery(
        "sealed-anew",
        "edited everywhere, and all sealed anew with the same key",
        ledger.forge_and_seal_anew,
    ),
    Forgery(
        "sealed-by-another",
        "the same with another key",
        ledger.forge_and_seal_by_another_key,
    ),
    Forgery(
        "picked-and-sealed-anew",
        "attempts picked, and all sealed anew with the same key",
        ledger.drop_and_seal_anew,
    ),
    Forgery(
        "sealed-twice",
        "by hand, with the key: a failed trial is appended again with reward 1",
        owner.seal_twice,
    ),
    Forgery(
        "withheld-and-sealed-again",
        "by hand: a failed trial is withheld, then appended under its name with reward 1",
        owner.withhold_and_seal_again,
    ),
    Forgery(
        "id-that-is-a-path",
        "by hand: a trial is appended whose id leads out of every directory",
        owner.seal_a_path,
    ),
    Forgery(
        "key-given-back",
        "by hand: the key is replaced, and the replaced key signs again",
        owner.give_the_key_back,
    ),
    Forgery(
        "weak-key",
        "by hand: the successor is a key of small order, for which anyone can sign",
        owner.name_a_weak_key,
    ),
    Forgery(
        "forged-before-sealing",
        "edited everywhere before it was sealed: the kept checkpoint is of the forgery",
        ledger.forge_before_sealing,
    ),
    Forgery(
        "passed-off",
        "trials of another runner, with records as if proctor had run them, sealed so",
        ledger.pass_off_as_own,
    ),
    Forgery(
        "typed-in",
        "commands of a person under a model's name, sealed so from the beginning",
        ledger.type_it_in,
    ),
    Forgery(
        "hostile-trial-id",
        "a stranger's ledger: a trial's id leads out of the directory that it is written to",
        stranger.name_trial_outside,
    ),
    Forgery(
        "hostile-evidence",
        "a stranger's ledger: the name of a file of evidence does",
        stranger.name_evidence_outside,
    ),
    Forgery(
        "hostile-bundle",
        "a stranger's bundle: the name of a member does",
        stranger.name_member_outside,
    ),
    Forgery(
        "left-out-supersession",
        "a stranger's bundle: that a pass was superseded is a hash, as if it were a trial",
        stranger.leave_out_supersession,
    ),
    Forgery(
        "better-of-two",
        "the job was run twice, and the better run handed in",
        ledger.hand_in_the_better_run,
    ),
]
