"""The viewer: jobs and ledgers as web pages on this machine.

    subject                     the data behind the pages: a ledger, or job directories
    shelf, job_files            job directories, which may change while they are viewed
    live_cost                   what trials without a result have cost so far
    experiment                  an experiment or a job: its rows, and the counts
    pages                       templates to responses, and their headers
    lru                         a cache of the values that were used last
    shown, listing              formatting of values; pagination
    guard, writing, problems    checks of requests, write access, error pages
    experiments                 the front page
    job_page, live              an experiment, its filters, and its changes as events
    app                         the table of routes
    trial                       the page of one trial; its contents are in trials/
    files                       one file of a trial, as text or as bytes
    reviews                     reviews submitted from the page of a trial
    ledger                      the pages of a ledger; their contents are in ledgers/
    visible                     make untrusted text visible
    compare                     two experiments side by side
    style                       style sheets as text, for standalone pages
    export                      the report and the pages of trials as a static site
    trace                       the page of a trace, and the JSON for its script
    diff                        two traces side by side
    search                      search all traces
    traces/                     access to a trace of any size
    boards                      boards, and the trials of their rows
    bars                        intervals and shares as small drawings
    server                      the HTTP server, on loopback
    templates/, static/         the pages; no build step, no external resources

Viewing changes nothing. The template engine escapes all text from runs.
"""
