"""Fixtures of the tests with a Docker engine."""

from tests.environments.docker.fixtures import engine, own_engine, shared_engine, small_image

__all__ = ["engine", "own_engine", "shared_engine", "small_image"]
