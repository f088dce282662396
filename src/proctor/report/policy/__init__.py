"""Checks a submission against a policy, with a reason for every trial that does not meet it.

    reason        the checks, and the reasons for which they fail
    model         a policy as a value
    document      policies as TOML: files, and the bundled ones
    submission    trials to be checked, from directories or a ledger
    from_jobs     a submission from harbor job directories
    record_facts  … compares a trial's record with its files
    from_ledger   a submission from an experiment in a ledger
    as_sealed     compares a job directory with the ledger it was sealed into
    grade         the leaderboard grade of a trial, from its row
    trace_checks  checks traces
    verdict       the result of every check
    checking      runs all checks of a policy on a submission
    bundled/      the bundled policies

A directory needs no ledger. Nothing of a submission is executed, no link is followed, and nothing
is written except for temporary copies.
"""
