"""Scoring rules under a name. A safer rule is another profile, never a silent change.

    harbor-0.13.1   exactly what that release does; the same code up to 0.22
    harbor-0.25     from 0.23 on, rewards that are not finite numbers are refused at reading

Metrics, pass@k and the multi-step rules are the same in both: the releases were compared.
"""

import msgspec


class Profile(msgspec.Struct, frozen=True):
    """What differs between releases of harbor in scoring."""

    name: str
    refuses_odd_rewards: bool
    """Text, null, nested and non-finite reward values are parse errors, not coerced or kept."""


HARBOR_0_13 = Profile(name="harbor-0.13.1", refuses_odd_rewards=False)
HARBOR_0_25 = Profile(name="harbor-0.25", refuses_odd_rewards=True)

PROFILES = {profile.name: profile for profile in (HARBOR_0_13, HARBOR_0_25)}
DEFAULT_PROFILE = HARBOR_0_13
