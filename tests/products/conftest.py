"""Fixtures of the product tests."""

import pytest

from tests import warm_kernels


@pytest.fixture(scope="session", autouse=True)
def _warm(pytestconfig: pytest.Config) -> None:
    """Keep a warm kernel ready for the notebooks that tests run."""
    warm_kernels.pytest_configure(pytestconfig)
