"""A Harbor task directory as a value, its digests, and what harbor would pass over.

    table        what every table of task.toml has in common, and the keys nobody reads
    network      which hosts may be reached
    environment  the machine a task runs in: image, resources, health check, servers
    config       the whole of task.toml
    presence     whether something is there, as harbor asks
    parse        text of task.toml to a config, or the sentences that say why not
    directory    one task directory: its config, its instructions, its scripts, its faults
    links        whether what is read of a task is the dataset's, and no other file of this machine
    hashed       SHA-256 of files, remembered for as long as they do not change
    checksum     harbor's task_checksum
    manifest     dataset digest v1: of files, of a task, of a dataset
    digests      all digests of one task together
    dataset      a directory of tasks, and the directories in it that harbor does not take
    check        everything worth saying about a task or a dataset
    terminal_bench           older task.yaml directories, written anew as Harbor's
    terminal_bench_compose   what of their docker-compose.yaml fits into a Dockerfile

Nothing here is run, built or sent anywhere, and only terminal_bench writes. Task directories come
from strangers: no file in one can make a reader hang or crash.
"""
