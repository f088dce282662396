"""The embedded sandbox: Linux namespaces and overlayfs, no daemon.

For a trial:
    environment   the sandbox as a trial sees it: start and stop
    pool          makes sandboxes, one of them ahead for the next trial
    inside        commands and files in a running sandbox, for the agent or in a verifier's room
    preflight     checks once per job that sandboxes can run; refusals checks a task's options
    limits        memory, processors and processes, by control groups
    storage       a file system of limited size for what is written
    network       none, the host's, or one that slirp4netns or pasta connects; uses routes
    host_ports    relays ports of the host that a job lets its agents reach
    scratch       directories for what is written; uses delete, subordinate
    slots         scratch directories that one sandbox after the other uses
    ranges        host ids for the users of one sandbox, if proctor runs as root
    accounting    lists everything that was written; uses walk, and mapped and mapped_work for
                  files that belong to other users
    watch         records which programs open the verifier's files
    changes       finds and restores the image's tools that the agent changed
    reap          removes what killed runs left; salvage saves their evidence first
Its root file system:
    roots/        images, the host's directories, Dockerfiles and their layers
Its processes:
    box           sandboxes as the runner sees them; uses link, channel, output, archive, unpack
    zygote        the process that sandboxes are forked from; premade makes their mounts as root
    init          PID 1; uses rootfs, privileges, filter, users, command, workers, file_ops,
                  tar_ops, processes

Imports nothing: the zygote loads this package, and every sandbox is a fork of the zygote.
"""
