#!/bin/sh
# One can commit to the repository, and the answer is there.
git -C /app -c user.name=tests -c user.email=tests@localhost commit -q --allow-empty -m test &&
    cmp /app/answer.txt /tests/expected.txt && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
