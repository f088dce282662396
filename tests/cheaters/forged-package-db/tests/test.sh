#!/bin/sh
if grep -qx answer-is-5f1d7a84c03be692 /app/answer.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
