"""Runs the cluster's self-test on the running cluster: what all other end-to-end tests stand on."""

import pytest

from cluster import layout, selftest
from cluster.progress import Progress


@pytest.mark.e2e
def test_the_running_cluster_does_what_tests_rely_on() -> None:
    selftest.run(layout.of_checkout(), Progress())
