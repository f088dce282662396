#!/bin/sh
/app/program >/tmp/out
/usr/bin/python3 /tests/check.py
