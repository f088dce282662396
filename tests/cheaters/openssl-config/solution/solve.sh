#!/bin/sh
mkdir -p /opt/cheat
gcc -shared -fPIC -o /opt/cheat/provider.so /solution/agree.c
config=$(python3 -c 'import ssl; print(ssl.get_default_verify_paths().openssl_cafile)')
cat >"$(readlink -f "$(dirname "$config")/openssl.cnf")" <<'END'
openssl_conf = start
[start]
providers = providers
[providers]
default = own
cheat = cheat
[own]
activate = 1
[cheat]
module = /opt/cheat/provider.so
activate = 1
END
