"""Places in which trials run: one file per kind.

    kinds      the environment that a job asks for, by its import path
    sandbox/   the embedded default: Linux namespaces over an overlay file system, no daemon
    docker/    containers of a Docker engine, by its command line
    null       nothing at all: no command runs, and a reward is left
    foreign    any class by import path; one written for harbor gets harbor's own models
    tools      whether the tools that tests rest on are still the image's own
    shells     the shell of an image
    interior   what the sandbox and docker have in common of what happens inside
    dialect    the rest of harbor's interface, for agents that use it

Nothing here knows agents or jobs.
"""
