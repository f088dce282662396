#!/bin/sh
value=$(sqlite3 /app/data.db "SELECT value FROM settings WHERE name = 'answer';")
if [ "$value" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
