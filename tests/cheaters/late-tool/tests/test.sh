#!/bin/sh
/app/program >/tmp/out
if cmp -s /tmp/out /tests/expected.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
