"""Who sits a task: the agents that come with proctor, and any class by its import path.

    kinds        an agent from what a job asks for
    command      runs a shell command inside the environment: claude, codex, aider, your own
    chat/        asks a model behind an OpenAI-compatible endpoint, and runs what it says
    live         the trajectory that an agent on the host writes
    replay       runs the shell commands of a recorded trace again
    foreign      a class by import path, with harbor's agent interface
    harbors      harbor's own agents, by their names
    revision     what pins an agent: the digest of its files, the output of a version command
    settings     an agent's kwargs as values
    secrets      what must not get into a trace

An agent gets an environment that is up and lives in it; it starts and stops none.
"""
