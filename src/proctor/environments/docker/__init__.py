"""The docker environment: containers of a Docker engine, through its command line.

For a trial:
    environment   a container as a trial sees it: start and stop
    inside        commands and files in a running container
    room          the verifier's room: a second container that the agent cannot reach
    refusals      rejects options that it does not support
    model_port    opens the port of the job's model gateway in a container's network
    image         finds, pulls or builds the image of a task once, and pins it
    containers    starts and removes containers, and lists their processes
    command       runs one command in a container, and ends it
    files         the protocol for files of a container, with two implementations:
    copies          `docker cp`
    merged          direct access to a root on this machine
    reap          removes containers and images that killed runs left
Below that:
    program       calls the command line; finds the engine, once per process
"""
