"""The rows of a query over a ledger's index, as JSON: Python's own sqlite3 and nothing else.

A floor for `proctor ledger list`, to be run by a fresh interpreter: INDEX QUERY VALUE. No import of
proctor's, whose start has a row of its own.
"""

import json
import sqlite3
import sys


def main() -> None:
    """Print what the query gives, a JSON object for each row."""
    path, query, value = sys.argv[1:]
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    print(json.dumps([dict(row) for row in connection.execute(query, (value,))]))
    connection.close()
