"""An agent with one tool, bash, on a provider's own client; runs inside an environment.

    client_agent.py openai-chat | openai-responses | anthropic | gemini

It holds one conversation without streaming and one with it, and prints the answers as JSON lines,
after its variables. It knows no address and no key: its client finds both among its variables.
"""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

import anthropic
import openai

MODEL = os.environ["PROCTOR_MODEL"].partition("/")[2]
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}


def run(arguments: Any) -> str:
    command = arguments["command"]
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return done.stdout


def talk_chat(client: openai.OpenAI, task: str, stream: bool) -> str:
    tool: Any = {"type": "function", "function": {"name": "bash", "parameters": PARAMETERS}}
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    messages.append({"role": "user", "content": task})
    while True:
        asked: Any = {"model": MODEL, "messages": messages, "tools": [tool]}
        if stream:
            with client.chat.completions.stream(**asked) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message.model_dump(include={"role", "content", "tool_calls"}))
        for call in message.tool_calls:
            output = run(json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


def talk_responses(client: openai.OpenAI, task: str, stream: bool) -> str:
    tool: Any = {"type": "function", "name": "bash", "parameters": PARAMETERS, "strict": False}
    items: list[Any] = [{"role": "user", "content": task}]
    while True:
        asked: Any = {"model": MODEL, "instructions": "Be brief.", "input": items, "tools": [tool]}
        if stream:
            with client.responses.stream(**asked) as events:
                response: Any = events.get_final_response()
        else:
            response = client.responses.create(**asked)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return str(response.output_text)
        items += [item.to_dict() for item in response.output]
        for call in calls:
            output = run(json.loads(call.arguments))
            items.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": output}
            )


def talk_anthropic(client: anthropic.Anthropic, task: str, stream: bool) -> str:
    tool: Any = {"name": "bash", "input_schema": PARAMETERS}
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        asked: Any = {"model": MODEL, "system": "Be brief.", "messages": messages}
        asked |= {"tools": [tool], "max_tokens": 1000}
        if stream:
            with client.messages.stream(**asked) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**asked)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in message.content if block.type == "text")
        messages.append({"role": "assistant", "content": [b.to_dict() for b in message.content]})
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": run(call.input)}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})


def talk_gemini(base: str, task: str, stream: bool) -> str:
    """By plain HTTP: Google's client is large."""
    contents: list[Any] = [{"role": "user", "parts": [{"text": task}]}]
    system = {"parts": [{"text": "Be brief."}]}
    tools = [{"functionDeclarations": [{"name": "bash", "parameters": PARAMETERS}]}]
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    while True:
        body = {"contents": contents, "systemInstruction": system, "tools": tools}
        request = urllib.request.Request(
            f"{base}/v1beta/models/{MODEL}:{method}",
            json.dumps(body).encode(),
            {"content-type": "application/json", "x-goog-api-key": os.environ["GEMINI_API_KEY"]},
        )
        with urllib.request.urlopen(request) as response:
            text = response.read().decode()
        text = text.removeprefix("data: ")
        parts = json.loads(text)["candidates"][0]["content"]["parts"]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        if not calls:
            return "".join(part["text"] for part in parts)
        contents.append({"role": "model", "parts": parts})
        answers = [
            {"functionResponse": {"name": "bash", "response": {"output": run(call["args"])}}}
            for call in calls
        ]
        contents.append({"role": "user", "parts": answers})


def can_connect(host: str, port: int) -> bool:
    """Whether anything but the gateway can be reached."""
    try:
        socket.create_connection((host, port), timeout=5).close()
    except TimeoutError:
        return True  # there is a route
    except OSError:
        return False
    return True


def find_talk(name: str) -> Callable[[str, bool], str]:
    match name:
        case "openai-chat":
            client = openai.OpenAI()
            return lambda task, stream: talk_chat(client, task, stream)
        case "openai-responses":
            client = openai.OpenAI()
            return lambda task, stream: talk_responses(client, task, stream)
        case "anthropic":
            speaker = anthropic.Anthropic()
            return lambda task, stream: talk_anthropic(speaker, task, stream)
    base = os.environ["GOOGLE_GEMINI_BASE_URL"]
    return lambda task, stream: talk_gemini(base, task, stream)


def main() -> None:
    talk = find_talk(sys.argv[1])
    print(json.dumps(dict(os.environ)))
    port = int(os.environ["DIRECT"])
    ways = {"provider": can_connect("127.0.0.1", port), "elsewhere": can_connect("192.0.2.1", 80)}
    print(json.dumps(ways))
    task = sys.stdin.read()
    for stream in (False, True):
        print(json.dumps(talk(f"{task} {'streamed' if stream else 'whole'}", stream)), flush=True)


if __name__ == "__main__":
    main()
