#!/bin/sh
cd /app || exit
echo 2 >data.txt
git config diff.external true
