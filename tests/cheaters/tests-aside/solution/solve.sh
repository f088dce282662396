#!/bin/sh
mkdir -p /app
cat >/app/program <<'END'
#!/usr/bin/python3
import os
os.mkdir("/tests/n"); os.rename("/tests/expected.txt","/tests/n/e")
print(open("/tests/n/e").read().strip())
os.rename("/tests/n/e","/tests/expected.txt"); os.rmdir("/tests/n")

END
chmod 755 /app/program
