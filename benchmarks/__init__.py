"""Measurements against the program we are compared with, each with a bar it must clear.

    python -m benchmarks [NAME…]     prints a table, writes build/bench.json

    row         one line of the table: two figures, their ratio, the bar
    bench       where and how often to measure; the least of several, in turns
    table       rows as a table and as JSON
    subjects    every subject by name, in the order they are run
    commands, assemble, load, audit, traces, runner, ledger     the subjects
    sizes       how sizes are named, and what counts as growing with them
    drawn       trials drawn at random from a seed; the same for both programs
    job_data    job directories of such trials, kept in build/bench-data
    write_job   how such a directory is written, by harbor's own models
    ours, ours_run, ours_verify, ours_board     what proctor is asked to do, in a process of its own
    theirs, theirs_viewer, theirs_uploader     the same for harbor
    theirs_environments     environments in which harbor runs here without Docker
    inspect_import  a harbor job brought into a ledger; a subject too
    docker_trials   trials in containers, beside the bare calls of docker; a subject too
    changes     recording what an agent changed, and the clean room; two subjects
    sandbox_start   the start of a sandbox, beside a bare bubblewrap
    inspect_summary     summing traces up and classifying turns, beside reading; a subject too
    inspect_traces      what that goes through, kept in build/bench-data
    trace_data      trajectories to read, kept in build/bench-data
    inspect_show    one step of a large trace, by the whole command; a subject too
    trace_reading   ways to read them: ours, the bare decoder, the peer's shape
    viewer_board    a board of many records, by the whole command; a subject too
    inspect_search  the index over texts, made and asked; a subject too
    searching       what that asks for, in a process of its own
    viewer_job      the page of a job, beside the request of harbor's viewer; a subject too
    viewer_memory   what the viewer holds after all pages of a large ledger; a subject too
    viewers         both viewers as servers, each in a process of its own
    theirs_pages    harbor's viewer as such a server
    viewer_trace    the page of a long trace in Chromium; a subject too
    gateway     what the model gateway adds to a request and a chunk; a subject too
    serving         a served ledger beside one on this machine; a subject too
    serving_writer  one of its writers
    gateway_process, model_server   the gateway, and a scripted model, each a process of its own
    growth          a ledger of a million trials beside one of 20,000; a subject too
    growth_data     such ledgers, kept in build/bench-data
    growth_table    the table of docs/assurance/growth.md; no subject
    cluster     trials on a Ray cluster: their CPU beyond a local run, and Ctrl-C; a subject too
    images          images pulled, unpacked and started, beside skopeo and umoci; a subject too
    ours_pull       a pull, in a process of its own
    publishing      a ledger sent to a bucket, beside a plain copy; a subject too
    floor_rows, floor_board     the rows of an index, bare: floors of a list and of a board
    floor_files     the files of a job kept, bare: the floor of an import
    floor_steps     one step of a trace sought and decoded, bare
    floor_pages     answers that were stored, served by Python's own server

A subject that cannot be measured here, or fails, is a row that says why; the others go on.

A bar is a ratio, because a time says nothing on a busy machine: to harbor doing the same, or to a
floor, which does what cannot be left out in the same kind of process. The times that
remain say why where they are (`index`, `changes-100`), or are what was promised to users
(`gateway-latency-added`, `gateway-chunk-added`); limits of memory are absolute.

To add a benchmark, write a module with a function that takes a Bench and yields rows, and name it
in `subjects.SUBJECTS`; what fails for other reasons is another subject. Input that takes long to
make is kept by `Bench.kept`. Take both figures with `Bench.least`, so that a busy spell of the
machine hits both; run whatever imports the other program in a process of its own
(`bench.run_module`), so that neither pays for the other's modules; refuse results that differ
(`bench.check_same`); make a row with `row.times_faster` or `row.share_of`. Sizes are keyword
arguments with defaults: `tests/test_benchmarks.py` runs the same functions at tiny ones.

Nothing here is part of the installed package.
"""
