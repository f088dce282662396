"""What of a record decides whether two numbers may stand side by side."""

import pytest

from proctor.record.comparable import TaskConditions, verifier_digest

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("image", "is_pinned"),
    [
        (f"debian@sha256:{DIGEST}", True),
        (f"sha256:{DIGEST}", True),
        ("debian:12", False),
        ("unresolved", False),
        (f"harbor-dockerfile:environment/Dockerfile@sha256:{DIGEST}", False),
    ],
)
def test_an_image_is_pinned_by_its_own_digest_alone(image: str, is_pinned: bool) -> None:
    assert TaskConditions(revision="r", image=image).has_pinned_image is is_pinned


def test_the_files_of_a_verifier_have_one_name_in_any_order() -> None:
    files = [("tests/test.sh", DIGEST), ("tests/data", DIGEST[::-1])]
    assert verifier_digest(files) == verifier_digest(files[::-1])
    assert verifier_digest(files) != verifier_digest(files[:1])


def test_a_verifier_that_is_not_pinned_has_no_name() -> None:
    assert verifier_digest([]) is None
    assert verifier_digest([("tests/test.sh", "md5")]) is None
