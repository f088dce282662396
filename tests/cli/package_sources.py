"""Small packages made on the spot, and an image whose apt and pip know local directories alone."""

import hashlib
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

DOCKERFILE = """FROM debian:12
WORKDIR /app
COPY repo /srv/repo
COPY wheels /srv/wheels
RUN rm -rf /etc/apt/sources.list.d/* /etc/apt/apt.conf.d/*proxy* \\
 && echo 'deb [trusted=yes] file:/srv/repo ./' > /etc/apt/sources.list \\
 && printf '[global]\\nno-index = true\\nfind-links = /srv/wheels\\n' > /etc/pip.conf \\
 && printf '[install]\\nbreak-system-packages = true\\n' >> /etc/pip.conf \\
 && apt-get update && apt-get install -y spare && python3 -m venv --without-pip tools
"""


def write_sources(place: Path, programs: Mapping[str, str]) -> None:
    """A Debian repository of programs by name, with what each says, and a directory of wheels."""
    repository, wheels = place / "repo", place / "wheels"
    repository.mkdir(parents=True)
    wheels.mkdir()
    index = ""
    for name, says in programs.items():
        deb = make_deb(repository, name, says)
        index += describe_deb(deb, name)
    (repository / "Packages").write_text(index)
    make_wheel(wheels, "greeting", "hello")


def make_deb(place: Path, name: str, says: str, version: str = "1.0") -> Path:
    """A Debian package with one program."""
    tree = place / f"{name}-tree"
    program = tree / "usr" / "bin" / name
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {says}\n")
    program.chmod(0o755)
    control = tree / "DEBIAN" / "control"
    control.parent.mkdir()
    control.write_text(_control_of(name, version) + "Description: a test\n")
    deb = place / f"{name}_{version}_all.deb"
    words = ["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(tree), str(deb)]
    subprocess.run(words, check=True, capture_output=True)
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    return deb


def _control_of(name: str, version: str) -> str:
    return (
        f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
        "Maintainer: Nobody <nobody@example.com>\n"
    )


def describe_deb(deb: Path, name: str) -> str:
    """Its paragraph in the list of a repository."""
    data = deb.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    where = f"Filename: ./{deb.name}\nSize: {len(data)}\nSHA256: {digest}\n"
    return f"{_control_of(name, '1.0')}{where}Description: a test\n\n"


def make_wheel(place: Path, name: str, says: str, version: str = "1.0") -> Path:
    """A Python package with one module, which has one variable, and one program."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"says = {says!r}\n\n\ndef main():\n    print(says)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    wheel = place / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            packed.writestr(path, text)
    return wheel
