"""One trial: an agent runs on a task in an environment, is verified, and recorded.

    trial           the whole course of it, on one page
    trial_run         a trial while it runs
    spec, order     what decides it, and what agents and environments are made from
    executor        what a job asks of whatever runs its trials
    agent, environment, paths, finding    what it asks of both, and what it leaves
    opening             its first files, its last ones, its log
    making, agent_phase, stop      its parts in order
    collect, artifacts           what is fetched from the environment
    verify, verifier_class    how it is verified, and by whom
    verification, reverify, flakes           once, once more, and how far both agree
    integrity, tools, unchanged, clock  what a reader of its score should know
    changes, account, clean_room   what the agent changed, the tests without it, and why less
    unasked, pausing                      files nobody asked for; stopping survivors
    opened, packages                      who opened the verifier's files; packages installed again
    change_record, clean_room_result      their files as values; the one reader of each
    change_files                          both, found among the files of a trial
    record, recording, swap               its TrialRecord, at each phase
    timeouts, network, network_switch     limits, and hosts that may be reached
    healthcheck, skills, inside  smaller things

Which agents and environments there are, and how many trials make a job, is not known here.
"""
