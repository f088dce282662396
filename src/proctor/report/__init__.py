"""Reports, boards, comparisons, gates and policies over many trials.

    in_jobs     trials in harbor job directories, without a ledger
    runs        a run: an experiment, or a job directory
    groups      trials by agent, model and settings
    scores      means, pass rates and costs
    behaviour   what agents did, from their traces
    wording     shared phrases
    symbols     the attempts at a task as symbols, the levels of findings as tones
    comparison/ compares two runs
    document/   a report about runs
    page/       documents as blocks, rendered as text, Markdown, HTML and plots
    statistics/ intervals, paired comparisons, variance, costs
    gate/       checks runs against limits
    policy/     checks a submission against a policy
    board/      the scores of all agents on a dataset

Official scores are computed by `reward`; nothing here writes to a ledger.
"""
