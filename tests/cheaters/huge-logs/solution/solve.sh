#!/bin/sh
cd /logs/agent || exit
truncate -s 1T terabyte
mkfifo endless
mkdir many && cd many && seq 2000 | xargs touch && cd ..
n=0; while [ $n -lt 300 ]; do mkdir d && cd d && n=$((n + 1)) || break; done
touch bottom
