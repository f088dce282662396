"""One trial: run an agent on a task in an environment, verify the result, and record it.

    trial                        the phases of a trial, in order
    trial_run, spec              state of a running trial; what decides it
    executor                     interface between a job and what runs its trials
    agent, environment           protocols of agents and environments, and their arguments
    paths, finding               files of a trial; integrity findings
    opening                      its first files, secrets, and log
    making, agent_phase          create the agent and environment, run the agent
    output_log                   what commands print, recorded as it comes
    collect                      fetch the agent's logs and artifacts from the environment
    verify, verifier_class       run the tests, or a verifier class
    verification, reverify       verify once, or repeatedly
    flakes                       agreement of repeated verifications
    integrity, unchanged, clock  checks around verification
    changes, account             what the agent changed, and when
    clean_room, unasked          the tests without it; files nobody asked for
    opened, packages             who opened the verifier's files; reinstalled packages
    change_record                reads changes.jsonl and clean-room.json
    clean_room_result            the contents of clean-room.json
    recording                    its TrialRecord, rewritten at each phase
    timeouts, network            time limits and network policies
    models, model_use            the job's model gateway; what was used of it
    inside                       working in an environment: users, scripts, healthchecks

Does not know which agents and environments exist, or how many trials make a job.
"""
