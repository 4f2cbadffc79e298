"""What ends the building of a kind cluster."""

from tests.harness.errors import HarnessError


class UnavailableError(HarnessError):
    """This machine cannot run a kind cluster at all; one line says what is missing and what to do
    about it.
    """
