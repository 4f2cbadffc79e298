"""The one exception that the harness raises for its own troubles."""


class HarnessError(RuntimeError):
    """The control plane could not be built, started or asked; the message says what to do about
    it.
    """
