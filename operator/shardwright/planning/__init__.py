"""What should run? Checks, selection, report; computes no cost.

``make_plan(model, inventory, request, traits)`` walks through the candidates of ``layouts``, prices
them with ``costs``, and lets every check of ``checks`` state its fact and how far it misses; no
check stops another. ``select`` ranks what stands by the objective, ``choice`` settles near ties,
and the answer is a ``Report``: a plan, or why there is none (``no_plan``, ``ways_out``).

The same input gives the same bytes; nothing knows Kubernetes, a clock or an engine. Words come
last: ``phrases``, ``sentences``, ``warnings``.
"""
