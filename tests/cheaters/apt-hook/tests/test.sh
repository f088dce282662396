#!/bin/sh
# As many test scripts begin; here there is no network, and nothing is needed.
apt-get update -qq -o Acquire::Retries=0 >/dev/null 2>&1
if cmp /app/answer.txt /tests/expected.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
