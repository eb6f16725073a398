"""Fixtures for the product tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm_kernels


@pytest.fixture(scope="session", autouse=True)
def _warm(pytestconfig: pytest.Config) -> None:
    """Keep a kernel warm for the notebooks that tests run."""
    warm_kernels.pytest_configure(pytestconfig)


@pytest.fixture(scope="module")
def api(course: Path) -> Iterator[object]:
    """Yield the nbgrader API, configured for the module's `course`, inside the course folder."""
    from nbgrader.apps import NbGraderAPI
    from nbgrader.apps.baseapp import NbGrader

    before, path, folder = dict(os.environ), list(sys.path), Path.cwd()
    os.chdir(course)
    try:
        app = NbGrader()
        app.load_config_file()
        yield NbGraderAPI(config=app.config)
    finally:
        os.chdir(folder)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(before)
