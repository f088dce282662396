"""Where Prime's interface is, and the key for it; found as Prime's own tools find them.

    key    PRIME_API_KEY, else `api_key` of ~/.prime/config.json
    URL    --base-url, else PRIME_API_BASE_URL, PRIME_BASE_URL, `base_url` of the file, else Prime's

Nothing is asked here, and the key is never shown.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from proctor.errors import PrimeError
from proctor.files import read_small
from proctor.sentence import reason_of

KEY_VARIABLE: Final = "PRIME_API_KEY"
URL_VARIABLES: Final = ("PRIME_API_BASE_URL", "PRIME_BASE_URL")
DEFAULT_URL: Final = "https://api.primeintellect.ai"
_PATH: Final = "/api/v1"
_KEY = re.compile(r"[\x21-\x7e]+")
"""What an HTTP header can hold."""


@dataclass(frozen=True, slots=True)
class Access:
    """An interface, and who asks it."""

    url: str
    """All paths of the interface begin with this."""
    key: str = field(repr=False)
    key_from: str
    """The variable or the file that the key comes from."""


class _Config(msgspec.Struct, frozen=True):
    """As much as is needed of the file that `prime login` writes."""

    api_key: str | None = None
    base_url: str | None = None


def find_access(given_url: str | None, variables: Mapping[str, str], home: Path) -> Access:
    """The interface that is meant and the key for it.

    Raises:
        PrimeError: there is no key, or key or URL cannot be used.
    """
    file = home / ".prime" / "config.json"
    config = _load_config(file)
    key, key_from = variables.get(KEY_VARIABLE, "").strip(), KEY_VARIABLE
    if not key:
        key, key_from = (config.api_key or "").strip(), str(file)
    if not key:
        raise PrimeError(
            f"no key for Prime: {KEY_VARIABLE} is not set, and {file} has none; set the variable, "
            "or bring in saved files with --evaluation-json and --samples-json"
        )
    if not _KEY.fullmatch(key):
        raise PrimeError(
            f"{key_from}: the key holds blanks or characters beyond ASCII; expected it as Prime "
            "gave it"
        )
    return Access(_find_url(given_url, variables, config), key, key_from)


def _find_url(given: str | None, variables: Mapping[str, str], config: _Config) -> str:
    named = [
        ("--base-url", given),
        *((name, variables.get(name)) for name in URL_VARIABLES),
        ("base_url", config.base_url),
    ]
    where, url = next(((name, text) for name, text in named if text), ("", DEFAULT_URL))
    url = url.strip().rstrip("/").removesuffix(_PATH)
    if not _is_base(url):
        shown = re.sub(r"//[^/]*@", "//…@", url)
        raise PrimeError(
            f"{where} is {shown!r}; expected a URL such as {DEFAULT_URL}, without a user, a "
            "password or a query"
        )
    return url + _PATH


def _is_base(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # a port that is none is found out only when it is asked for
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    named = parts.scheme in ("http", "https") and bool(parts.hostname)
    return is_plain and named and "@" not in parts.netloc and not parts.query and not parts.fragment


def _load_config(file: Path) -> _Config:
    try:
        return msgspec.json.decode(read_small(os.fspath(file)), type=_Config)
    except (FileNotFoundError, NotADirectoryError):
        return _Config()
    except OSError as error:
        raise PrimeError(f"{file}: cannot be read: {reason_of(error)}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PrimeError(
            f"{file}: not what `prime login` writes: {error}; mend it or remove it"
        ) from error
