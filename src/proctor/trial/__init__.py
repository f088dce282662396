"""One trial: run an agent on a task in an environment, verify the result, and record it.

    trial                                 the phases of a trial, in order
    trial_run                             state of a running trial
    spec, order                           what decides it; arguments of agents and environments
    executor                              interface between a job and what runs its trials
    agent, environment                    protocols of agents and environments
    paths, finding                        files of a trial; integrity findings
    opening                               its first files, secrets, and log
    making, agent_phase                   create the agent and environment, run the agent
    output_log                            what commands print, recorded as it comes
    collect, artifacts                    fetch files from the environment
    verify, verifier_class                run the tests, or a verifier class
    verification, reverify, flakes        verify once, repeat, and measure agreement
    integrity, tools, unchanged, clock    checks around verification
    changes, account, clean_room          what the agent changed; the tests without it
    unasked, pausing                      files nobody asked for; pausing processes
    opened, packages                      who opened the verifier's files; reinstalled packages
    change_record, clean_room_result      readers of changes.jsonl and clean-room.json
    change_files                          both, found among the files of a trial
    recording, swap                       its TrialRecord, rewritten at each phase
    timeouts, network, network_switch     time limits and network policies
    models, model_use, replayed           the job's model gateway; what was used of it
    healthcheck, skills, inside           smaller helpers

Does not know which agents and environments exist, or how many trials make a job.
"""
