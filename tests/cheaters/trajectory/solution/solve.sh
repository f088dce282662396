#!/bin/sh
# For runners whose agents write a trace. Each line is a command of its own to proctor's `scripted`.
printf '{"step":0,"type":"user","content":"an honest agent"}\\n' >/logs/agent/trajectory.jsonl
mkdir -p /workspace && cp /logs/agent/trajectory.jsonl /workspace/trajectory.jsonl
