"""What should run? Checks, selection, report; computes no cost.

``make_plan(model, inventory, request, traits)`` walks through the candidates of ``layouts``, prices
them with ``costs``, and lets every check of ``checks`` speak about every candidate: a check states
a fact and how far it misses, and never stops the others. ``select`` ranks those that stand by the
objective, ``choice`` settles near ties, and the answer is a ``Report``: a plan, or why there is
none (``no_plan``, ``ways_out``).

The same input gives the same bytes. Nothing knows Kubernetes, a clock or an engine. Words are made
last: ``phrases`` is the table, ``sentences`` and ``cautions`` say why a person may rely on the
choice, and how far.
"""
