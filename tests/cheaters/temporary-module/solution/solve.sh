#!/bin/sh
printf 'import os\n\nos._exit(0)\n' >/tmp/json.py
