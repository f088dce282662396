"""The embedded sandbox: Linux namespaces and overlayfs, no daemon.

For a trial:
    environment   the sandbox as a trial sees it: start and stop
    pool          what sandboxes are made with, and one that waits ready for the next trial
    inside        commands and files in one that runs, from the agent's place or a verifier's room
    preflight     whether it can be had at all, asked once for a job; refusals is what it has not
    limits        memory, processors and processes, by control groups
    network       none, the host's own, or one that slirp4netns or pasta connects
    host_ports    ports of the host that a job lets its agents reach, by a relay
    scratch       where it writes; runs, delete, subordinate, mounts serve it
    slots         that scratch, emptied for the next one
    ranges        ids of the host that one sandbox's users have, for root
    accounting    everything that was written in it; walk lists it, mapped has the right to,
                  mapped_work does it
    watch         which programs open the verifier's files
    changes       what of an image's tools the agent changed; keeping gives the tests the image's
    reap          what killed runs left; salvage brings their evidence to safety
For its root file system:
    roots/        images, the host's own directories, Dockerfiles and their layers
Below that, alone in small processes:
    box           sandboxes for the runner; router, link, channel, output, archive, unpack serve it
    zygote        the process that they are forked from; premade is what it mounts for them as root
    init          PID 1: rootfs, privileges, filter, inherited, users, command, workers, file_ops,
                  identity, processes

Nothing is imported here: the zygote loads this package, and every sandbox is a fork of it.
"""
