"""Classes that a job names by their import paths: looked at before any trial begins.

None is made: what its constructor says is its trial's own matter.
"""

from proctor.agents.foreign import AGENT_METHODS
from proctor.environments.foreign import ENVIRONMENT_METHODS
from proctor.harbor.configs import OWN_ENVIRONMENTS, JobConfig
from proctor.plugin import load_class
from proctor.trial.verifier_class import VERIFIER_METHODS


def check_classes(config: JobConfig) -> None:
    """See that every class that is named by its import path can be had and has its methods.

    Raises:
        PluginError: one cannot, or has not; names what is missing.
    """
    for agent in config.agents:
        if agent.import_path is not None:
            load_class(agent.import_path, "agent", AGENT_METHODS)
    environment = config.environment.import_path
    if environment is not None and environment not in OWN_ENVIRONMENTS.values():
        load_class(environment, "environment", ENVIRONMENT_METHODS)
    if config.verifier.import_path is not None:
        load_class(config.verifier.import_path, "verifier", VERIFIER_METHODS)
