"""The viewer: what was run and what is sealed, as pages on this machine.

    subject     what is looked at: a ledger, or job directories
    shelf, job_files    job directories, which may change while they are looked at
    experiment  an experiment or a job: its rows, and the counts
    pages       templates to responses, and the headers that all of them have
    shown, listing    values as text, lists in pages, large texts made once
    guard, writing, problems    hosts and headers, who may write, what leads nowhere
    experiments     the first page
    job_page, live    an experiment, what is asked of it, and its changes as events
    app         the table of routes
    trial       the page of one trial; what it shows is in trials/
    files       one file of a trial, as text or as bytes
    reviews     what is written from the page of a trial
    ledger      the pages of a ledger; what they show is in ledgers/
    visible     text of strangers made fit to be seen
    compare     two experiments side by side
    style       style sheets as text, for pages that stand by themselves
    export      the report and the pages of trials as a static site
    trace       the page of a trace, and what its script asks for
    diff        two traces beside each other
    search      words in all traces
    traces/     a trace for these pages, of any size
    boards   boards, their rows, and intervals as small drawings
    server      the program that answers, on loopback
    templates/, static/   the pages; no build step, nothing from elsewhere

Reading changes nothing. All text from runs is escaped by the template engine.
"""
