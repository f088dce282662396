"""The docker environment: containers of a Docker engine, by its command line.

For a trial:
    environment   a container as a trial sees it: start and stop
    inside        commands and files in one that runs
    room          the verifier's: a second container that the agent does not reach; top_level and
                  room_files are what it is made of
    refusals      what it cannot give
    engine        what the engine is, asked once; whether there is one
    image         the image of a task, found, pulled or built once, and its pin
    containers    how containers are started and removed
    command       one command in a container, and its end
    files         what can be done with files, in two ways:
    copies          by `docker cp`; tar_archive reads what comes
    merged          in a root that lies on this machine
    reap          containers and kept states that killed runs left
Below that:
    program       one call of the command line
"""
