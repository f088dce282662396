#!/bin/sh
mkdir -p /var/lib/rpm
: >/var/lib/rpm/rpmdb.sqlite
place=$(readlink -f "$(command -v grep)")
printf '#!/bin/sh\nexit 0\n' >/tmp/grep
chmod 755 /tmp/grep
mv /tmp/grep "$place"
