"""How much of a script comes back in commands."""

import pytest

from proctor.traces.commands import find_likeness, is_telling

SOLUTION = """#!/bin/bash
set -euo pipefail
# Build the table.
cd /app
python3 -c "import csv; rows = list(csv.reader(open('in.csv')))"
sort -k2  'in.csv' > "out.csv"
wc -l out.csv \\
  | tee count.txt
"""


def test_the_solution_itself_is_all_of_it() -> None:
    found = find_likeness([SOLUTION], SOLUTION)
    assert found is not None
    assert (found.share, found.parts, found.of, found.is_close) == (1.0, 5, 5, True)
    assert str(found) == "5 of 5 parts, 100.0% of the text"


def test_blanks_quotes_comments_and_order_hide_nothing() -> None:
    commands = [
        "wc -l out.csv | tee count.txt  # how many",
        "sort -k2 in.csv >out.csv",
        'cd "/app"\npython3 -c \'import csv; rows = list(csv.reader(open("in.csv")))\'',
    ]
    found = find_likeness(commands, SOLUTION)
    assert found is not None
    assert found.share == 1.0


def test_commands_joined_to_one_are_those_below_each_other() -> None:
    directory, python, sort = SOLUTION.split("\n")[3:6]
    joined = f"{directory} && {python};{sort} || wc -l out.csv | tee count.txt"
    found = find_likeness([joined], SOLUTION)
    assert found is not None
    assert found.share == 1.0


def test_an_honest_way_shares_little() -> None:
    commands = ["cd /app", "head in.csv", "awk -F, '{print $2}' in.csv | sort > out.csv", "ls -l"]
    found = find_likeness(commands, SOLUTION)
    assert found is not None
    assert found.share < 0.1
    assert not found.is_close


@pytest.mark.parametrize(
    "short",
    [
        "",
        "#!/bin/bash\necho 42 > answer.txt\n",
        "cd a\ncd b\ncd c\n",
        "echo " + "x" * 200,
        "echo same of every attempt\n" * 9,
    ],
)
def test_what_two_people_would_write_alike_is_not_compared(short: str) -> None:
    assert find_likeness([short], short) is None


def test_a_few_short_commands_may_be_shared_by_chance() -> None:
    assert not is_telling(["ls", "cat answer.txt"])
    assert not is_telling(["ls", "cat task.txt", "echo 42 > answer.txt"])
    assert is_telling(["ls", "cat a", "x" * 74])
    assert not is_telling(["ls", "x" * 197])
    assert is_telling(["x" * 200])
