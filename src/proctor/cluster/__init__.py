"""Trials on the machines of a Ray cluster: `proctor run --on ray://HOST:PORT`.

    connection     connects to a cluster, and refuses one without authentication
    executor       the executor of a job: submits trials as Ray tasks, takes over what they left
    nodes          what nodes have, what they lack, and how many trials fit
    worker         what runs on nodes: trials, checks, reaping
    home           a node's own directory: copies of what travels, and trials while they run
    archive        directories as archives, and the checked way back
    shipping       files, images and variables of the driver's machine, sent to nodes
    link           messages between trials and the driver, through an actor
    live           the files of a running trial that the driver shows
    models         the way from a trial on a node to the model gateway on the driver

Nothing here decides what is run or retried: the job does. Ray is imported by these modules only.
"""
