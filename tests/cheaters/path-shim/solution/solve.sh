#!/bin/sh
for place in /usr/local/sbin /usr/local/bin; do
    for name in grep python3 cat sleep; do
        printf '#!/bin/sh\nexit 0\n' 2>/dev/null >"$place/$name" && chmod +x "$place/$name" ||
            echo "DENIED $place/$name"
    done
done
