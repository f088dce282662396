"""A site for each test, on the one cluster."""

from pathlib import Path

import pytest

from tests.cluster.drivers import Site
from tests.cluster.ray_cluster import RayCluster


@pytest.fixture
def site(ray_cluster: RayCluster, tmp_path: Path) -> Site:
    """All nodes are alive, and there is no task yet."""
    ray_cluster.restore()
    return Site(ray_cluster, tmp_path)
