"""Options and plugins of the whole suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that rewrites golden files instead of comparing with them."""
    parser.addoption("--update-goldens", action="store_true", help="rewrite golden files; read the diff before you commit")


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    """Return whether golden files are to be rewritten."""
    return bool(request.config.getoption("--update-goldens"))
