"""Environments in which trials run.

    kinds             makes the environment that a job names
    sandbox/          the default: Linux namespaces over an overlay file system, no daemon
    docker/           containers, through the docker command line
    null              runs no command and writes a reward, for benchmarks of proctor itself
    foreign           any class by import path; one written for harbor gets harbor's models
    tools             finds system tools that the agent changed
    image_config      what an image starts by itself: its ENTRYPOINT and HEALTHCHECK
    shells            finds the shell of an image
    running           what the sandbox and docker share once they run
    forwarding        forwards connections from inside to single ports of the host
    harbor_interface  the rest of harbor's environment interface, for agents that use it

Independent of agents and jobs.
"""
