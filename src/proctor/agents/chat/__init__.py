"""`chat`: a plain loop with one tool, bash, against any OpenAI-compatible endpoint.

    proctor run -p TASKS -a chat -m MODEL --ak base_url=https://…/v1

    settings     its kwargs as values, and where the endpoint and its key come from
    agent        the agent: loaded on use, because httpx takes its time to load
    wire         what is sent and what comes back, as values
    endpoint     one request: an answer, or how it failed
    refusals     what an endpoint says instead of an answer, as errors
    retries      which failures are tried again, after how long
    tool         the bash tool: its description, a call, a result
    limits       what ends a run before the model does
    accounting   tokens, money and time
    story        what happened, told to trajectory.jsonl as it happens
    judging      asks a model to label the turns of traces

It runs on the host, and only its commands run in the environment: the key never gets in there. It
remembers nothing from one command to the next, and summarizes nothing.
"""
