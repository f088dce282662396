#!/bin/bash
cd /app
wc -l < orders.csv > count.txt
awk -F, '{ spent[$1] += $2 } END { for (name in spent) print spent[name], name }' orders.csv |
    sort -rn | head -n 1 | cut -d' ' -f2 > best.txt
