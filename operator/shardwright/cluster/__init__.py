"""The only code that talks to Kubernetes; it decides nothing.

Reading: a ``Reader`` lists and watches one kind on a thread of its own, keeps a small projection of
each object (``sources``), and hands changes to the event loop (``handover``), which puts them into
the ``Store``. Lists are read item by item, so that one huge or broken object costs only itself.

Writing: ``writer`` carries out what ``reconcile`` decided: create, apply, patch, delete by uid.
``calls`` says which request goes next: urgent ones first, no namespace alone.

Leadership (``elector``) is checked where a request is sent, so that a process that slept through
its Lease writes nothing. An answer is an object, a refusal, or somebody else's words
(``transport``).
"""
