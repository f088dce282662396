"""The viewer: jobs and ledgers as web pages on this machine.

    data_source                 the data behind the pages: a ledger, or job directories
    job_directories             job directories, which may change while they are viewed
    experiment                  an experiment or a job: its rows, and the counts
    pages                       templates to responses, and their headers
    lru                         a cache of the values that were used last
    format, sanitize, listing   formatting of values; untrusted text made safe; pagination
    problems                    error pages
    experiments                 the front page
    job_page, live              an experiment, its filters, and its changes as events
    live_cost                   what trials without a result have cost so far
    app                         the table of routes, and checks of requests
    trial                       the page of one trial; its contents are in trials/
    files                       one file of a trial, as text or as bytes
    reviews                     write access; reviews submitted from the page of a trial
    ledger                      the pages of a ledger
    ledger_log, verification    its entries; a verification in the background
    compare                     two experiments side by side
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
