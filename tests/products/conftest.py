"""Fixtures for the tests of the products."""

import pytest

from tests import warm_kernels


@pytest.fixture(scope="session", autouse=True)
def _warm(pytestconfig: pytest.Config) -> None:
    """Let the notebooks that a test runs begin at once."""
    warm_kernels.pytest_configure(pytestconfig)
