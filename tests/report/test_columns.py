"""Tables of text: what is too wide for the terminal is wrapped or cut."""

from proctor.report.page.columns import draw_table

HEADINGS = ("check", "reasons")
ROWS = [("model", "two trials used another model than the policy allows"), ("tasks", "none")]


def test_a_column_that_folds_is_wrapped_and_nothing_of_it_is_lost() -> None:
    assert draw_table(HEADINGS, ROWS, dear=[True, False], fold=[False, True], room=30) == [
        "check  reasons",
        "model  two trials used another",
        "       model than the policy",
        "       allows",
        "tasks  none",
    ]


def test_wide_characters_that_fold_fit_and_none_is_lost() -> None:
    lines = draw_table(("what",), [("\u6e2c" * 10,)], fold=[True], room=8)
    assert "".join(lines[1:]) == "\u6e2c" * 10
    assert max(map(len, lines[1:])) <= 4


def test_another_column_is_cut() -> None:
    assert draw_table(HEADINGS, ROWS, room=18) == [
        "check  reasons",
        "model  two trials…",
        "tasks  none",
    ]


def test_without_a_width_nothing_is_wrapped() -> None:
    assert draw_table(HEADINGS, ROWS, fold=[False, True])[1] == "model  " + ROWS[0][1]
