#!/bin/sh
mkdir /json
printf 'import os\n\nos._exit(0)\n' >/json/__init__.py
