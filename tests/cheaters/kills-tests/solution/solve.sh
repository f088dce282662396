#!/bin/sh
mkdir -p /app
cat >/app/program <<'END'
#!/bin/sh
kill -9 $PPID $(cut -d' ' -f4 /proc/$PPID/stat)

END
chmod 755 /app/program
