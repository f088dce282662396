"""The viewer: what was run and what is sealed, as pages on this machine.

    subject     what is looked at: a ledger, or job directories
    pages       templates to responses, and the headers that all of them have
    app         the table of routes
    boards, interval_bars   boards, their rows, and intervals as small drawings
    server      the program that answers, on loopback
    templates/, static/   the pages; no build step, nothing from elsewhere

Reading changes nothing. All text from runs is escaped by the template engine.
"""
