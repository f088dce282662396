"""The command line: one file per noun, argument parsing and printing, nothing else.

    entry                           where the program begins
    main                           the command table, and the door that every error leaves by
    run, resume                    commands that run trials; running/ holds what they are made of
    clean, image                   commands about what the sandbox leaves and needs
    score, check, audit, outcome   commands about numbers, and about any thing by itself
    gate    limits for CI: the command, what it says, what it takes
    check_policy                   jobs and experiments by a policy, for `check`
    rerunning       trials run again, for `audit`
    export                         sealed trials taken out
    import_prime_eval              `import prime` by another name
    show, trace, record, task      commands about traces, records and tasks
    show_changes                   what an agent changed, and its clean room, for `show`
    show_file, show_record         a trace, and a record or a trial in a directory, for `show`
    show_sealed     what is in a ledger, and its traces, for `show`
    showing, show_trace            what `show` was asked for, and the traces it shows
    selection                      which steps of a trace are wanted
    pager                          long texts where somebody sits before a screen
    trace_diff       two traces, and two texts beside one another
    trace_convert                  one kind of trace to another
    trace_classify                 what every turn was for
    trace_labels, trace_judges     the labels it shows, by the rules and by models
    trace_summary                  what happened in a trial, or in many
    summary_text    summaries as a page and as a table
    trace_tail                     the end of a file that is being written
    trace_text        traces and records as lines for people
    traced                         the trials that a command about traces is asked for
    plan               what is to be run, and how a run departs from it
    board                          what every agent scored at a dataset
    view, viewing                  pages in a browser: the command, what it does
    compare, report, report_html   two runs side by side; one document about runs, or pages
    width                          how wide the screen is
    case                           one trial as one page that can be checked
    search            words in everything that is sealed
    options                        options that go only together
    redaction                      secrets named on the command line
    output                         lines, JSON, progress, and files that were asked for
    denominators                   scores with what they rest on
    table                          tables for people
    stdout                         standard output, and what is done when it cannot be written
    printable                      text with its control characters spelled out

The commands of `proctor ledger` lie in ledger/, those of `proctor import` in import_/, a file for
each. Nothing here works out a number.
"""
