"""The only code that talks to Kubernetes; decides nothing.

Reading: a ``Reader`` lists and watches one kind on a thread of its own, keeps a small projection of
each object (``sources``), and hands changes to the event loop (``handover``), which puts them into
the ``Store``. Every list is read item by item, so that one huge or broken object costs itself and
no other.

Writing: ``writer`` carries out the values that ``reconcile`` decided on: create, apply, patch,
delete by uid. ``throttle`` says which request goes next; urgent ones first, no namespace alone.

Leadership (``elector``) is asked where a request is sent, so that a process that slept through its
Lease writes nothing. An answer is an object, a refusal, or somebody else's words (``answers``):
three different facts.
"""
