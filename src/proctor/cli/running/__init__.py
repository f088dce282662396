"""What `proctor run` and `proctor resume` are made of: flags to a job, and a job before one's eyes.

    sections     a command with many options, whose help lists them in sections
    options      the options of `run`
    flags        what was given, as values
    pairs        NAME=VALUE
    files        files that are given: a config, variables
    config       flags to a JobConfig and Settings
    agents       … the part about agents
    host         variables of the host that tasks ask for
    watching     a running job as lines
    display      lines or a drawing, while it runs
    drawing      the drawing, on a terminal
    report       what is printed when it has ended
    preview      what is printed instead of running it
    watched      a job run, shown and reported

Nothing here runs a trial or works out a number.
"""
