"""Pure functions over traces: what an agent did, as facts. Nothing here reads a file or prints.

classification  what every turn of an agent was for
"""
