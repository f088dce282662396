"""A user whom file modes stop. Root reads everything: root's tests become nobody for a while."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """As nobody, in the whole process; whoever is not root stays what they are.

    Import and chdir before: nobody may be unable to enter the directories above this Python or
    above a temporary one.
    """
    if os.geteuid() != 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
