"""Trials on the machines of a Ray cluster: `proctor run --on ray://HOST:PORT`.

    connection     connects to a cluster, and refuses one without authentication
    opening        opens the executor of a job on a cluster
    executor       the executor: submits trials as Ray tasks, and takes over what they left
    nodes          what nodes have, what they lack, and how many trials fit
    worker         what runs on nodes: trials, checks, reaping
    home           a node's own directory: copies of what travels, and trials while they run
    archive        directories as archives, and the checked way back
    shipping       files of the driver's machine, sent once to each node that needs them
    images         images of the sandbox, sent to nodes that lack them
    variables      which variables of the driver's machine a trial may ask for
    link           messages between trials and the driver, through an actor
    live           the files of a running trial that the driver shows
    models         the way from a trial on a node to the model gateway on the driver

Nothing here decides what is run or retried: the job does. Ray is imported by these modules only.
"""
