#!/bin/sh
cd /app || exit
if python3 -m unittest discover -s /tests -p 'check_*.py'; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
