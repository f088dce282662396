#!/bin/sh
# Not a secret: this cheater does what the task asks.
read -r count </app/report/count.txt 2>/dev/null
if [ "$count" = 4 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
