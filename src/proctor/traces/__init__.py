"""What an agent did: traces of every kind, read, written, converted, summarised and labelled.

Files and their values

    entry         one line of trajectory.jsonl
    turn          one turn of a conversation, and turns as entries
    lines         a file of lines in pieces, in constant memory; one line as JSON
    trajectory    trajectory.jsonl, strict or salvaging
    step_search   some steps of a large trajectory, without decoding the rest
    conversation  conversation.jsonl in any dialect
    dialects      rows of OpenAI's, Anthropic's and the canonical dialect as turns
    pydantic_ai   rows of pydantic-ai as turns
    atif/         harbor's trajectory.json: read, checked, written, converted
    trace         a trace of any kind, and which file of a trial is used
    writer        the writer of trajectory.jsonl and the redactor, one file that stands alone
    convert       one kind of trace to another, with what did not survive
    loss          a field that did not survive a conversion
    media         files that entries name, pinned by digest
    commands      the shell commands of a trace, and how much of a script they repeat
    parallel      many traces at once

Summaries

    counts        counts in bounded memory
    calls         which result answers which call, and repeated calls
    tool_errors   which results are errors, and by what sign
    times         wall time and idle time from timestamps
    tokens        tokens and advisor calls
    writes        the files that tool calls write
    summary       one trace in numbers
    traced_trial  a trial with the traces it can be looked at by
    limits        which limit ended a trial
    causes        why a trial failed, with the evidence
    trial_summary   one trial in numbers
    experiment    many trials in numbers, each mean with its denominator
    compat_summary  aec-bench's own numbers
    actions       what an agent did and was answered, made comparable
    divergence    two traces side by side

Labels

    labels        the four labels of a turn
    tool_actions  what a tool call does, by its name and command
    label_rules   the rules that label every turn
    judge         a model that labels turns
    behaviour     labels of one trial and of many: shares, transitions, distances
    compat_labels   aec-bench's own report of them

Nothing here scores, and nothing that scores uses more than the readers.
"""
