"""Agents: those that come with proctor, and any class by its import path.

    kinds        makes the agent that a job names; oracle, scripted and nop are defined here
    command      runs a shell command inside the environment: claude, codex, aider, your own
    chat/        a loop around a model behind an OpenAI-compatible endpoint, with a bash tool
    replay       runs the shell commands of a recorded trace again
    foreign      a class by import path, with harbor's agent interface; harbor's own agents
    revision     what pins an agent: the digest of its files, the output of a version command
    settings     parses an agent's kwargs; opens its trajectory, and keeps secrets out of it

An agent gets a running environment. It never starts or stops one.
"""
