"""`chat`: a plain loop with one tool, bash, against any OpenAI-compatible endpoint.

    proctor run -p TASKS -a chat -m MODEL --ak base_url=https://…/v1

    settings     parses its kwargs, and finds the endpoint and its key
    agent        the agent and its loop; imported on use, because httpx is slow to import
    wire         builds requests and parses answers
    endpoint     sends one request; returns an answer or a failure
    refusals     turns error responses into exceptions
    retries      decides which failures are retried, and after how long
    tool         the bash tool: its description, a call, a result
    limits       ends a run at a limit of turns, tokens, money or time
    accounting   tokens, money and time of a run
    trajectory   writes trajectory.jsonl during the run
    judging      asks a model to label the turns of traces

The loop runs on the host, and only its commands run in the environment, which never sees the API
key. Each command gets a new shell, and the conversation is never summarized.
"""
