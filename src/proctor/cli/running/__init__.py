"""Parts of `proctor run` and `proctor resume`: from flags to a job, and its output.

    sections     commands whose help lists options in sections
    options      the options of `run`
    flags        the given options as values
    pairs        parses NAME=VALUE
    files        reads config and .env files
    config       makes JobConfig and Settings from flags
    agents       … the part about agents
    git_dataset  … the tasks of a dataset in a git repository
    mistakes     common mistakes, and what was meant
    host         variables of the host that tasks need
    ledger       the ledger of a job
    place        where trials run: this machine, or a cluster
    harbor_options  options that only harbor has, with what to use instead
    watching     the state of a running job
    display      output while it runs
    drawing      … on a terminal
    report       output when it has ended
    reasons      … why trials errored, and why records are partial
    replays      … how requests were answered from a recording
    preview      output of a dry run
    watched      runs a job with its output

Trials are run and numbers computed elsewhere.
"""
