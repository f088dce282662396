"""Jobs: plan many trials, run a limited number at once, and resume where they stopped.

    job                                                    run_job and resume_job
    options, settings, watch                               options, settings, observers
    config_file, mcp_file, secrets                         configuration files and secrets
    classes                                                check classes given by import path
    request, planning, planned, preview, needs             from options to a plan or a preview
    tasks, datasets, registry, published, packages, cache  find tasks
    git_source, git_tasks, git_repository, fetching        fetch tasks with git
    dataset_cache                                          what of a dataset is fetched
    slots, images, metrics, lock                           attempts x tasks x agents; pins
    downloads                                              what images need, for a preview
    store                                                  the job's own files and their lock
    existing, foreign, resume                              existing trials: keep, run or redo
    running, local_executor                                run a slot with its retries
    retry, attempts                                        when to retry; files of attempts
    progress, durable                                      statistics; flushing results
    flakes                                                 agreement of repeated verifications
    gateway                                                the model gateway; its recordings
    sealing                                                seal trials into the ledger

Does not run commands in environments, and does not print.
"""
