"""Plan, render and keep alive sharded LLM serving on Kubernetes."""

__version__ = "0.1.0"
