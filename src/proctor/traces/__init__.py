"""What an agent did: traces of every kind, read, written, converted, summarised and labelled.

Files and their values

    entry         one line of trajectory.jsonl
    turn          one turn of a conversation, and turns as entries
    lines         a file of lines in pieces, in constant memory; one line as JSON
    trajectory    trajectory.jsonl, read strictly or leniently, whole or some steps
    conversation  conversation.jsonl in any dialect
    dialects      rows of OpenAI's, Anthropic's and the canonical dialect as turns
    pydantic_ai   rows of pydantic-ai as turns
    atif/         harbor's trajectory.json: read, checked, written, converted
    trace         a trace of any kind, and which file of a trial is used
    writer        the writer of trajectory.jsonl and the redactor, in one standalone file
    convert       convert between kinds of traces, and list what was lost
    loss          a field that was lost in a conversion
    media         files that entries name, pinned by digest
    commands      the shell commands of a trace, and how much of a script they repeat
    parallel      many traces at once

Summaries

    counts        counts in bounded memory
    calls         which result answers which call, repeated calls, and the files that calls write
    tool_errors   which results are errors, and how that is recognised
    usage         wall time and idle time, tokens and advisor calls
    summary       one trace in numbers
    traced_trial  a trial with its traces
    limits        which limit ended a trial
    failures      what failed, in its own words: tests, exceptions, the last errors of an output
    causes        why a trial failed, with the evidence
    trial_summary   one trial in numbers, and many, each mean with its denominator
    actions       an agent's actions and their answers, made comparable
    divergence    compare two traces

Labels

    labels        the four labels of a turn, and how far two sets of labels agree
    tool_actions  what a tool call does, by its name and command
    label_rules   the rules that label every turn
    judge         a model that labels turns

Nothing here scores, and the code that scores uses only the readers.
"""
