"""What happened in a trial, counted from its traces. Pure: files are read, nothing is run or kept.

    tally           counts by name, of which a stranger cannot make too many
    turns           how many turns there were, whatever order the steps come in
    calls           tool calls that wait for their results
    tool_errors     which results are errors, and by what sign
    told            what a result says in words where no exit code is on record
    loops           the same call again and again
    times           wall time and idle time from timestamps
    tokens          tokens and advisor calls that a trace tells of
    shell_writes    the files that a shell command writes
    writes          the files that tool calls write
    subagents       what ran beside the main agent
    summary         one trace in numbers: fed entry by entry, in bounded memory
    merging         the parts of a trial of several steps as one
    reading         a trace file to its summary
    trial           one trial in numbers: its traces, and what its record says of itself
    limits          which limit ended a trial
    experiment      many trials in numbers, each mean with its denominator
    causes          why a trial failed: one cause, with the evidence for it
    cause_rules     the rules that find it, in their order
    cause_text      words in logs that name a cause
    compat          aec-bench's own numbers of a trial and of many, as they are
    compat_signals  those signals from a trajectory
    compat_spoken   those signals from a conversation
    divergence      two trajectories side by side: where they part, and who parted first
    actions         what an agent did and what it was answered, made comparable
    volatile        parts of an answer that differ from run to run and mean nothing
    alignment       two long sequences laid side by side, in bounded time
    classification/ what every turn of an agent was for

Nothing here scores, and nothing that scores looks here.
"""
