"""Harbor task directories as values, their digests, and which directories harbor skips.

    table        base of every table of task.toml, and detection of unknown keys
    network      which hosts may be reached
    environment  the machine a task runs in: image, resources, health check, servers
    config       the whole of task.toml
    presence     whether a path exists, by harbor's rules
    parse        parse task.toml to a config or a list of problems
    directory    one task directory: config, instructions, scripts, problems
    links        refuse links that lead to files outside the dataset
    hashed       cached SHA-256 of files
    checksum     harbor's task_checksum
    manifest     dataset digest v1: of files, of a task, of a dataset
    digests      all digests of one task together
    dataset      a directory of tasks, and the directories in it that harbor skips
    check        problems and notes about a task or a dataset
    scaffold     the files of a new task
    terminal_bench           convert older task.yaml directories to Harbor's format
    terminal_bench_compose   move their docker-compose.yaml into a Dockerfile where possible

Nothing here runs or builds anything, and only terminal_bench writes. Task directories are
untrusted: no file in one can make a reader hang or crash.
"""
