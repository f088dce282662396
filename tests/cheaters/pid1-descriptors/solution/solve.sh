#!/bin/sh
exec python3 /solution/reach.py
