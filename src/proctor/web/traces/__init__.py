"""Access to one trace for the pages: any step of it, whatever its size, in bounded memory.

    place     locate a trial and the files that may be its traces
    lines     random access to lines: in a file, in sealed frames, in a temporary copy
    index     each entry's step, role, tool, and whether it is an error
    labels    the purpose of every turn
    cache     cache of recently viewed traces
    window    read some entries of a trace
    row       convert an entry for display
    plain     make text safe to display, and fold it
    finding   find the entries that contain a text
    chosen    select the entries that match a filter
    beside    two traces side by side

Does not make responses; writes only unnamed temporary copies.
"""
