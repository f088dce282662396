"""`chat`: a plain loop with one tool, bash, against any OpenAI-compatible endpoint.

    proctor run -p TASKS -a chat -m MODEL --ak base_url=https://…/v1

    settings     parses its kwargs, and finds the endpoint and its key
    agent        the agent, its loop, its tool and its trajectory; imported on use, because httpx
                 is slow to import
    answers      parses answers, whole or streamed
    endpoint     sends requests, and repeats those that failed temporarily
    accounting   tokens, money and time of a run
    judging      asks a model to label the turns of traces

The loop runs on the host, and only its commands run in the environment, which never sees the API
key. Each command gets a new shell, and the conversation is never summarized.
"""
