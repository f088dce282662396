"""Text from a job is hostile: control characters are shown, never sent to a terminal."""


def printable(text: str) -> str:
    """Text with its control characters spelled out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spelled(char) for char in text)


def _spelled(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
