"""Which variables of the driver's machine a trial on a node may ask for."""

from collections.abc import Mapping

from proctor.gateway.upstream import PROVIDERS
from proctor.harbor.agents import find_keys
from proctor.harbor.env import find_template
from proctor.trial.opening import find_envs
from proctor.trial.spec import TrialSpec

HELD = "held-by-the-gateway"
"""Stands for a provider's key, which a trial with a gateway never gets."""


def find_variables(
    spec: TrialSpec, host: Mapping[str, str], *, is_served: bool = False
) -> dict[str, str]:
    """Return the variables that templates of a trial name, and what its agent looks for.

    `is_served`: its agent reaches models through the gateway, which keeps the keys of providers.
    """
    templates = (find_template(value) for env in find_envs(spec) for value in env.values())
    names = {template.name for template in templates if template is not None}
    keys = {name for provider in PROVIDERS.values() for name in provider.keys}
    if not is_served:
        names |= find_keys(spec.config.agent, host).keys()
        names |= {name for provider in PROVIDERS.values() for name in provider.urls}
    return {
        name: HELD if is_served and name in keys else host[name] for name in names if name in host
    }
