"""Check third-party classes that a job names, before any trial begins.

Classes are not instantiated: errors of a constructor belong to its trial.
"""

from proctor.agents.foreign import check_makeable, load_agent_class
from proctor.environments.kinds import ENVIRONMENT_METHODS
from proctor.harbor.configs import OWN_ENVIRONMENTS, JobConfig
from proctor.plugin import load_class
from proctor.trial.verifier_class import VERIFIER_METHODS


def check_classes(config: JobConfig) -> None:
    """Check that every class given by import path can be imported and has its methods."""
    for agent in config.agents:
        check_makeable(agent)
        if agent.import_path is not None:
            load_agent_class(agent.import_path)
    environment = config.environment.import_path
    if environment is not None and environment not in OWN_ENVIRONMENTS.values():
        load_class(environment, "environment", ENVIRONMENT_METHODS)
    if config.verifier.import_path is not None:
        load_class(config.verifier.import_path, "verifier", VERIFIER_METHODS)
