"""Access to one trace for the pages: any step of it, whatever its size, in bounded memory.

    place          locate a trial and the files that may be its traces
    lines          random access to lines: in a file, in sealed frames, in a temporary copy
    index          each entry's step, role, tool, errors, and the purpose of every turn
    cache          cache of recently viewed traces
    rows           read some entries of a trace, and make them safe to display
    entry_filter   find the entries that match a filter, or contain a text
    trace_diff     two traces side by side

Does not make responses; writes only unnamed temporary copies.
"""
