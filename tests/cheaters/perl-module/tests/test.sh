#!/bin/sh
perl /tests/answer.t && reward=1
echo "${reward:-0}" >/logs/verifier/reward.txt
