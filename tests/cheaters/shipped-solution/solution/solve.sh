#!/bin/sh
mkdir -p /app/report
seq 1 40 | grep 7 > /app/report/sevens.txt
wc -l < /app/report/sevens.txt > /app/report/count.txt
sha256sum < /app/report/sevens.txt > /app/report/digest.txt
