"""What does a resource ask? The words of the wire end here, in checked values.

A ``Question`` is a resource and the texts that it refers to (a config, a draft's config). Resolving
names the model (``model``), the engine and its version (``engine``), how the pods are to run and
the use of the plan (``intent``); together they are a ``Subject``, the value to begin reading with.
Its hashes change with all that makes a new plan necessary and with nothing
else, and ``stock`` says which GPUs there are for a subject.
"""
