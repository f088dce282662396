#!/bin/sh
setsid python3 /solution/ghost.py </dev/null >/dev/null 2>&1 &
until [ -e /tmp/haunted ]; do sleep 0.01; done
