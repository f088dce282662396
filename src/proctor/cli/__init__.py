"""The command line: one file for each command, with argument parsing and printing only.

    entry                          the entry point of the program
    main                           the command table, and error handling
    removed                        commands and options of earlier versions, and what serves instead
    init                           creates a task, an agent and a ledger to start from
    run, resume                    commands that run trials; see running/
    clean, image                   commands about the sandbox
    dataset                        datasets by name, and what of them is fetched
    fetching                       the progress of a fetch
    score, check, audit, outcome   commands that compute and check numbers
    gate                           fails CI when a run misses a threshold
    check_policy                   `check --policy`
    rerunning                      `audit --rerun`
    export                         exports sealed trials
    import_prime_eval              `import prime` under its name in aec-bench
    show                           shows trials, traces, records and jobs; see showing/
    board                          shows the scores on a dataset
    view, viewing                  pages in a browser
    compare, report, report_html   compares runs, and writes reports
    serve                          serves a ledger, with its tokens and machines
    search                         searches sealed traces
    options                        combinations of options
    redaction                      secrets named on the command line
    output                         prints lines, JSON and long texts, and writes files
    tables                         prints tables, and scores with their denominators
    stdout                         writes to standard output, and handles its failures

The commands of `proctor ledger` are in ledger/, those of `proctor task` in task/, those of `proctor
trace` in trace/, those of `proctor import` in import_/. Numbers are computed elsewhere.
"""
