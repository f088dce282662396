#!/bin/sh
# Looks at a fresh clone: what is committed counts.
git clone -q /app /tmp/clone
if cmp /tmp/clone/answer.txt /tests/expected.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
