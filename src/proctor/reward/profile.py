"""Named scoring rules. A changed rule gets a new profile; existing profiles never change.

    harbor-0.13.1   exactly as that release scores; unchanged up to 0.22
    harbor-0.25     since 0.23, rewards that are not finite numbers are rejected when read

Metrics, pass@k and the multi-step rules are the same in both releases.
"""

import msgspec


class Profile(msgspec.Struct, frozen=True):
    """The scoring differences between releases of harbor."""

    name: str
    refuses_odd_rewards: bool
    """Text, null, nested and non-finite reward values are parse errors instead of being coerced."""


HARBOR_0_13 = Profile(name="harbor-0.13.1", refuses_odd_rewards=False)
HARBOR_0_25 = Profile(name="harbor-0.25", refuses_odd_rewards=True)

PROFILES = {profile.name: profile for profile in (HARBOR_0_13, HARBOR_0_25)}
DEFAULT_PROFILE = HARBOR_0_13
