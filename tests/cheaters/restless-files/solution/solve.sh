#!/bin/sh
printf '#!/bin/sh\nexit 0\n' >/usr/local/bin/accept-answer
chmod 755 /usr/local/bin/accept-answer
cat >/app/restless.py <<'END'
import itertools, os, shutil
for n in itertools.count():
    place = f"/app/restless/{n % 200}/a/b"
    os.makedirs(place, exist_ok=True)
    open(f"{place}/c", "w").write("x" * 1000)
    shutil.rmtree(f"/app/restless/{(n + 50) % 200}", ignore_errors=True)
END
setsid timeout 60 /usr/bin/python3 /app/restless.py >/dev/null 2>&1 </dev/null &
sleep 0.5
