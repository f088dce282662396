"""Runs that other systems left, made into records.

    made             a record with what it rests on: pins, evidence, where its cost comes from
    trial_evidence   the files of a harbor trial, hashed, and the trace among them
    trial_sources    everything that is known of one harbor trial, read once
    trial_inputs     its task, agent, environment and inputs, pinned as far as can be
    trial_results    its outputs and evaluation
    trial_timing     how long it and its phases took
    trial_cost       its tokens and money
    trial_redaction  secrets, taken out of all that is made
    intake           many trials sealed, the refused ones named, the counts adding up
    submission       what somebody names to be sealed
    traced_files     trials with traces in files and directories, none of them sealed
    aec_bench        a tree of aec-bench's records
    harbor_trial     a harbor trial directory to a record

prime/ holds the hosted samples of Prime's evaluations.

An importer has no clock and draws nothing: the same bytes give the same record. What is read is
never changed, and nothing of it is run.
"""
