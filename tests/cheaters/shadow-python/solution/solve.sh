#!/bin/sh
true=$(readlink -f "$(command -v python3)")
gcc -DTRUE="\"$true\"" -o /usr/local/bin/python3 /solution/shadow.c
