"""Is a submission what a policy asks for? A reason for every trial that is not.

    reason        the checks, and every reason for which one fails
    model         a policy as a value
    document      policies as TOML: files, and the bundled ones
    submission    what is checked: trials with what is known of them, from directories or a ledger
    from_jobs     a submission from plain harbor job directories
    record_facts  … what a trial's own record says that its files do not
    from_ledger   a submission from an experiment in a ledger
    as_sealed     a job directory against the ledger that it was sealed into
    grade         the leaderboard grade of one attempt, from what boards have
    trace_checks  a trace for every rewarded trial
    witness_checks  cosignatures of named witnesses
    verdict       what came of every check
    checking      all checks of a policy on a submission
    bundled/      the policies that come along

A plain directory needs no ledger. Nothing of a submission is run, no link is followed, and nothing
is written but temporary copies.
"""
