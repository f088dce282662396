"""Environments in which trials run.

    kinds             makes the environment that a job names: built-in, harbor's, or any class
    sandbox/          the default: Linux namespaces over an overlay file system, no daemon
    docker/           containers, through the docker command line
    null              runs no command and writes a reward, for benchmarks of proctor itself
    tools             finds system tools that the agent changed
    image_config      what an image starts: its ENTRYPOINT, HEALTHCHECK and shell
    running           what the sandbox and docker share once they run
    forwarding        forwards connections from inside to single ports of the host

Independent of agents and jobs.
"""
