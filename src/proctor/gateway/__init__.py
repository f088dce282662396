"""The model gateway: a recording reverse proxy, the only way from an environment to a model.

    gateway      the gateway of one job, and its accounts
    options      what it is run with, and which agents it serves
    server       answers requests: sends them on, delivers the answers, records both
    delivery     what a client is given of an answer, and what is kept of it
    routing      whose a request is, and where it goes
    connections  the connections to providers
    upstream     the providers, their addresses and keys
    account      one trial's token, files and spending
    budget       limits on what may be spent
    weather      retries, and one pace for all trials of a job
    recording    model-calls.jsonl, written and read
    recordings   finds the recorded exchanges of a trial or a job
    replay       answers requests from recorded exchanges
    exchange     a request and its answer, in terms that all protocols share
    protocols/   OpenAI's chat completions and responses, Anthropic's messages, Gemini
    wire         reads requests and answers of all protocols, and writes errors in their forms
    trace        builds the trace of a trial from its exchanges

Does not know tasks, environments or jobs.
"""
