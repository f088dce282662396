"""Files that calls write: write forms alone."""

import pytest

from proctor.traces.calls import find_command, list_shell_writes, list_writes
from proctor.traces.summary import summarise
from tests.traces.samples import called


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("echo hi > out.txt", ["out.txt"]),
        ("echo hi >> 'my out.txt' 2>&1", ["my out.txt"]),
        ("make >log 2>err.log; cat log", ["log", "err.log"]),
        ("make &> all.log", ["all.log"]),
        ("cat > a.py <<'EOF'\nif x > y:\n    print('> b')\nEOF\necho done > c", ["a.py", "c"]),
        ("cat <<EOF > a\n> b\nEOF", ["a"]),
        ("ls | tee -a one two > /dev/null", ["one", "two"]),
        ("cp -r a b && mv c /d/e", ["b", "/d/e"]),
        ("sed -i 's/a > b/c/' f.txt", ["f.txt"]),
        ("X=1 sudo tee /etc/conf <in", ["/etc/conf"]),
        ("echo 'a > b' \"c > d\"", []),
        ("cat output.md", []),
        ("sed 's/a/b/' f.txt", []),
        ("grep x f 2>/dev/null >&2", []),
        ("true # > nothing", []),
        ("guarantee me", []),
        ("> ", []),
        ("echo 'never closed > x", ["x"]),
    ],
)
def test_a_shell_command_writes(command: str, files: list[str]) -> None:
    assert list(list_shell_writes(command)) == files


@pytest.mark.parametrize(
    ("tool", "arguments", "files"),
    [
        ("write_file", {"path": "output.md", "content": "x"}, ["output.md"]),
        ("Edit", {"file_path": "/a/b"}, ["/a/b"]),
        ("str_replace_based_edit_tool", {"command": "create", "path": "p"}, ["p"]),
        ("str_replace_based_edit_tool", {"command": "view", "path": "p"}, []),
        ("apply_patch", {"input": "*** Begin Patch\n*** Add File: x.py\n+1"}, ["x.py"]),
        ("read_file", {"path": "output.md"}, []),
        ("shell", {"cmd": ["bash", "-c", "x"]}, []),
        ("write_file", {"path": 7}, []),
        ("search", {"query": "a", "limit > 7": 1}, []),
        ("shell", {"command": "ls > a"}, ["a"]),
    ],
)
def test_a_tool_writes(tool: str, arguments: dict[str, object], files: list[str]) -> None:
    entry = called(1, "", tool, arguments=arguments)
    assert list(list_writes(entry, tool, find_command(arguments))) == files


def test_only_writing_an_output_counts_as_having_written_it() -> None:
    assert not summarise([called(1, "cat output.md")]).written.wrote_output
    written = summarise([called(1, "cat a"), called(4, "x > /w/output.md")]).written
    assert (written.wrote_output, written.calls, written.first_step) == (True, 1, 4)
    assert [(each.path, each.times) for each in written.shown] == [("/w/output.md", 1)]
