#!/bin/sh
# The faster tool where there is one.
search=$(command -v rg || command -v grep)
if "$search" -qx answer-is-5f1d7a84c03be692 /app/answer.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
