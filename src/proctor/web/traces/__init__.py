"""One trace for the pages: any step of it at once, whatever its size, in bounded memory.

    place     the trial that is meant, and which of its files can be traces
    lines     where the lines of a trace lie: in a file, in sealed frames, in a temporary copy
    index     what is known of every entry: its step, role, tool, whether it is an error
    labels    what every turn was for
    kept      traces that were looked at, the last ones, and what is known of them
    window    some entries of a trace, read where they lie
    row       an entry as a page shows it
    plain     text of a trace without what a screen would obey
    finding   which entries hold a text
    chosen    which entries a filter lets through
    beside    two traces beside each other

Nothing here makes a response; nothing is written but temporary copies without a name.
"""
