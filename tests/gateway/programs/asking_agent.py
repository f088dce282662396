"""Asks a model by plain HTTP, as often as its argument says; fails if there is no answer."""

import json
import os
import sys
import urllib.error
import urllib.request


def ask(text: str) -> str:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps(body).encode(),
        {
            "content-type": "application/json",
            "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
        },
    )
    with urllib.request.urlopen(request) as response:
        return str(json.loads(response.read())["choices"][0]["message"]["content"])


def main() -> None:
    print(json.dumps(dict(os.environ)))
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        try:
            print(json.dumps(ask(f"Question {number}.")), flush=True)
        except urllib.error.HTTPError as error:
            sys.exit(error.read().decode())


if __name__ == "__main__":
    main()
