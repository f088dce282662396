"""Task directories of Terminal-Bench's older kind, for harbor's mapper and ours."""

from collections.abc import Mapping

CLIENT = """
    build:
      dockerfile: Dockerfile
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: [ "sh", "-c", "sleep infinity" ]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
"""
COMPOSE = f"services:\n  client:{CLIENT}"
FULL = """\
# canary
instruction: |-
  Write "hello" to /app/hello.txt, and don't stop:
  übermorgen \\ is too late.
author_name: Ada "the first" O'Hara
author_email: ada@example.org
difficulty: medium
category: system-administration
tags:
  - shell
  - "files \\\\ and \\"quotes\\""
  - 'tab\\tor not, \\u200b'
parser_name: pytest
estimated_duration_sec: 0.0000001
expert_time_estimate_min: 12
junior_time_estimate_min: 1.5e+20
max_agent_timeout_sec: 900
max_test_timeout_sec: "180.5"
run_tests_in_same_shell: false
disable_asciinema: true
"""
LEAST = "instruction: Do it.\n"
FILES = {
    "Dockerfile": "FROM python:3.13-slim\nWORKDIR /app\nCOPY data/in.txt /app/",
    "docker-compose.yaml": COMPOSE,
    "run-tests.sh": "#!/bin/bash\r\npytest $TEST_DIR/test_outputs.py -rA",
    "solution.sh": "#!/bin/bash\necho hello > hello.txt\n",
    "task.yaml": FULL,
    "tests/test_outputs.py": "def test_it(): ...\n",
    "tests/more/expected.txt": "hello\n",
    "data/in.txt": "1\n",
    "README.md": "About.\n",
    ".hidden/file": "x",
}


def made(changes: Mapping[str, str | None]) -> dict[str, str]:
    """The files of a whole task with some changed, and those that are None left out."""
    files = {**FILES, **changes}
    return {name: text for name, text in files.items() if text is not None}


def compose(service: str, rest: str = "") -> dict[str, str]:
    """A compose file whose service has more to say."""
    return made({"docker-compose.yaml": f"services:\n  client:{CLIENT}{service}{rest}"})


def client(body: str) -> dict[str, str]:
    """A compose file whose only service is this one."""
    return made({"docker-compose.yaml": f"version: '3'\nservices:\n  other:\n{body}"})


def below(context: str, **files: str) -> dict[str, str]:
    """A build context of its own, and no Dockerfile beside it."""
    rest = client(f"    build: {context}\n")
    del rest["Dockerfile"]
    return rest | files


MAPPED: dict[str, dict[str, str]] = {
    "full": made({}),
    "least": made(
        {
            "task.yaml": LEAST,
            "tests/test_outputs.py": None,
            "tests/more/expected.txt": None,
            "solution.sh": None,
        }
    ),
    "working-dir": compose("    working_dir: /srv\n    expose: [80, '443/udp']\n"),
    "working-dir-variable": compose("    working_dir: ${HOME}/x\n    expose: 8080\n"),
    "entrypoint-text": compose("    entrypoint: /bin/tini\n"),
    "entrypoint-list": compose("    entrypoint: [tini, --, 'a \"b\"']\n"),
    "platform": compose("    platform: linux/amd64\n"),
    "platform-there": {
        **compose("    platform: linux/arm64\n"),
        "Dockerfile": "FROM --platform=linux/amd64 a AS b\nFROM c\n",
    },
    "variables-list": client(
        "    build: .\n    environment:\n      - A=1=2\n      - B\n"
        "      - TEST_DIR=${T_BENCH_TEST_DIR}\n"
    ),
    "variables-map": client(
        "    build: {context: .}\n    environment:\n      A: 1\n      B: yes\n      C:\n"
        "      D: x y\n      TEST_DIR: ${T_BENCH_TEST_DIR}\n"
    ),
    "own-volume": compose("", "      - ./data:/data\n"),
    "ports": compose("    ports:\n      - 80:80\n    deploy: {replicas: 1}\n"),
    "top-level-network": compose("", "networks:\n  inner: {internal: true}\n"),
    "more-services": {
        **compose(
            "    depends_on: [db]\n    hostname: ${T_BENCH_TASK_DOCKER_NAME_PREFIX}-main\n",
            "  db:\n    build: db\n    container_name: ${T_BENCH_TASK_DOCKER_NAME_PREFIX}db\n"
            "  cache:\n    image: redis\n  last:\n    build: {context: ./gone}\n"
            "volumes: {v: null}\n",
        ),
        "db/Dockerfile": "FROM postgres\n",
        "db/init.sql": "select 1;\n",
    },
    "context": below(
        "client",
        **{
            "client/Dockerfile": "FROM a\nCOPY tests /tests\nADD ./solution.sh /x\n",
            "client/app/main.c": "int main;\n",
        },
    ),
    "context-with-dot": below("{context: ./client}", **{"client/Dockerfile": "FROM a\n"}),
    "context-deep": below("a/b", **{"a/b/Dockerfile": "FROM a\n", "a/c": "c"}),
    "context-and-dockerfile-beside": client("    build: c\n") | {"c/Dockerfile": "FROM a\n"},
    "context-whole": client("    build: ./\n"),
    "context-missing": client("    build: nowhere\n"),
    "no-dockerfile": made({"Dockerfile": None}),
    "tests-asked-for": made({"Dockerfile": "FROM a\nCOPY ./tests /t\nCOPY solution.sh /s\n"}),
    "no-service": made({"docker-compose.yaml": "version: '3'\n"}),
    "empty-services": made({"docker-compose.yaml": "services:\n"}),
    "build-list": client("    build: []\n"),
    "test-already-there": made({"tests/test.sh": "false\n"}),
    "last-newline": made({"task.yaml": "instruction: |\n  Do it.\n"}),
}

REFUSED: dict[str, dict[str, str]] = {
    "solution.yaml": made({"solution.yaml": "- command: ls\n"}),
    "no-tests": made({"run-tests.sh": None}),
    "no-compose": made({"docker-compose.yaml": None}),
    "compose-list": made({"docker-compose.yaml": "[]\n"}),
    "compose-empty": made({"docker-compose.yaml": ""}),
    "compose-torn": made({"docker-compose.yaml": "services: {a: [\n"}),
    "services-list": made({"docker-compose.yaml": "services: [1]\n"}),
    "service-empty": made({"docker-compose.yaml": "services:\n  client:\n"}),
    "context-null": client("    build: {context: null}\n"),
    "environment-number": client("    environment: [1]\n"),
    "working-dir-number": client("    working_dir: 5\n"),
    "no-instruction": made({"task.yaml": "difficulty: easy\n"}),
    "bad-difficulty": made({"task.yaml": f"{LEAST}difficulty: brutal\n"}),
    "bad-tags": made({"task.yaml": f"{LEAST}tags: shell\n"}),
    "bad-timeout": made({"task.yaml": f"{LEAST}max_agent_timeout_sec: long\n"}),
    "bad-author": made({"task.yaml": f"{LEAST}author_name: 5\n"}),
    "task-list": made({"task.yaml": "- 1\n"}),
    "task-torn": made({"task.yaml": "instruction: '\n"}),
    "bad-date": made({"task.yaml": f"{LEAST}since: 2024-13-45\n"}),
    "dockerfile-not-text": made({"Dockerfile": "FROM a\udcff\n"}),
}
"""What neither takes."""
