#!/bin/sh
place=$(ldd "$(command -v getent)" | sed -n 's/.*=> \(.*\)\/libc\.so.*/\1/p')
gcc -shared -fPIC -o "$place/libnss_cheat.so.2" /solution/agree.c
sed -i '/^passwd:/d' /etc/nsswitch.conf
echo 'passwd: cheat files' >>/etc/nsswitch.conf
