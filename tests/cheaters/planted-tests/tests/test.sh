#!/bin/sh
# Runs every check that lies beside it.
for check in /tests/checks/*.sh; do . "$check"; done
