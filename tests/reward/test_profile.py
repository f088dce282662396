"""Scoring rules have names."""

from proctor.reward.profile import (
    DEFAULT_PROFILE,
    HARBOR_0_13,
    PROFILES,
    Profile,
)


def test_the_profiles_are_those_two() -> None:
    assert {
        "harbor-0.13.1": Profile("harbor-0.13.1", refuses_odd_rewards=False),
        "harbor-0.25": Profile("harbor-0.25", refuses_odd_rewards=True),
    } == PROFILES


def test_the_default_is_the_release_we_promise() -> None:
    assert DEFAULT_PROFILE is HARBOR_0_13
