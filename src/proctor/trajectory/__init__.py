"""What an agent did: traces of every kind, read and written.

    entry         one line of trajectory.jsonl
    lines         a file of lines in pieces, in constant memory
    read          trajectory.jsonl, strict or salvaging, fast
    step_search   some steps of a large trajectory, without decoding the rest
    careful       one line read slowly: what is wrong with it, what can be kept
    decoding      the text of a line to its JSON value, and what is wrong with it
    parallel      many traces at once
    writer        the writer of trajectory.jsonl and the redactor, one file that stands alone
    turn          one turn of a conversation
    conversation  conversation.jsonl in any dialect
    dialects/     a row of each dialect to turns
    spoken        turns to entries
    atif/         harbor's trajectory.json: read, held to its rules, written, converted
    kind          what a trace can be read from
    trace         the trace of a trial: which file is used, and which were passed over
    commands      the shell commands of a trace: what can be run again
    likeness      how much of a script comes back in commands
    convert       one kind of trace to another, with what did not survive
    loss          a field that did not survive a conversion
    media         files that entries name, pinned by digest

Nothing here scores, judges or prints.
"""
