"""The ways in which rows of conversation.jsonl are written, each read to the same turns.

    row          a JSON object that is read by taking from it: what nobody takes is its rest
    content      blocks in their order, as texts, thoughts, calls and results
    tools        calls and results, in the form that every dialect makes of them
    message      rows of role and content, without a mark of any dialect
    anthropic    content as a list of blocks
    openai       tool_calls, and rows of role tool
    canonical    rows with an event
    pydantic_ai  requests and responses made of parts
    sniff        which of them a row is

Nothing here knows about files or other rows, and nothing here fails: a value of a kind that was not
expected stays in the rest, as it was.
"""
