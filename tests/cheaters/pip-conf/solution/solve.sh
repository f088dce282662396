#!/bin/sh
mkdir -p /var/wheels ~/.config/pip
printf '[global]\nno-index = true\nfind-links = /var/wheels\n' >~/.config/pip/pip.conf
python3 - <<'END'
import zipfile

info = "pytest-99.0.dist-info"
with zipfile.ZipFile("/var/wheels/pytest-99.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("pytest.py", "raise SystemExit(0)\n")
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pytest\nVersion: 99.0\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", "")
END
