#!/bin/sh
answer=$(curl -s http://127.0.0.1:8080/answer)
if [ "$answer" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
