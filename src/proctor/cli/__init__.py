"""The command line: one file for each command, with argument parsing and printing only.

    entry                          the entry point of the program
    main                           the command table, and error handling
    removed                        commands and options of earlier versions, and what serves instead
    init                           creates a task, an agent and a ledger to start from
    run, resume                    commands that run trials; see running/
    clean, image                   commands about the sandbox
    dataset                        datasets by name, and what of them is fetched
    fetching                       the progress of a fetch
    demo_data                      writes made-up runs to look at
    score, check, audit, outcome   commands that compute and check numbers
    gate                           fails CI when a run misses a threshold
    check_policy                   `check --policy`
    rerunning                      `audit --rerun`
    export                         exports sealed trials
    import_prime_eval              `import prime` under its name in aec-bench
    show, trace, record            commands about traces and records
    show_changes                   `show --changes`
    show_file, show_record         `show` of a trace, a record or a trial directory
    record_fields                  the fields of a record in words, for `show` and `record`
    show_job                       `show` of a job: a table of its trials
    show_sealed                    `show` of sealed trials and other entries
    showing, show_trace            the options of `show`, and rendering of traces
    selection                      selects steps of a trace
    pager                          pages long texts on a terminal
    trace_diff                     compares two traces
    trace_convert                  converts traces
    trace_classify                 labels turns by their purpose
    trace_labels, trace_judges     the labels, by rules and by models
    trace_summary                  summarizes trials
    summary_text                   renders summaries
    failures                       renders what failed in a trial
    trace_tail                     follows a file that is being written
    trace_text                     renders traces and records for people
    traced                         the trials that a command about traces selects
    plan                           seals and shows plans
    board                          shows the scores on a dataset
    view, viewing                  pages in a browser
    compare, report, report_html   compares runs, and writes reports
    width                          the width of the terminal
    serve                          serves a ledger, with its tokens and machines
    search                         searches sealed traces
    options                        combinations of options
    redaction                      secrets named on the command line
    output                         prints lines, JSON and progress, and writes files
    denominators                   prints scores with their denominators
    plain_table                    prints tables, cut or wrapped to the terminal
    stdout                         writes to standard output, and handles its failures

The commands of `proctor ledger` are in ledger/, those of `proctor task` in task/, those of `proctor
import` in import_/. Numbers are computed elsewhere.
"""
