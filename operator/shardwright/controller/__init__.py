"""The operator process: kopf watches, wiring, metrics, health, leadership; no domain decisions.

One process, three parts. The *readers* of ``cluster`` keep caches warm, whoever leads. The *queue*
holds the keys of models that something has changed for; workers take the most urgent one,
namespaces in turn. A *reconcile* (``reconciler``) reads everything about one model, asks
``reconcile.next_step`` for the next step until there is none, writes that in order and publishes
the status.

Whatever a user's input can make expensive (resolving, planning, rendering) runs in a second process
that may be killed at any time (``worker``, ``worker_process``, ``wire``); the Lease and the probes
have threads of their own, and wait for nobody.

Rules of the domain are in ``reconcile``. If a branch here depends on the nature of a group or a
plan, it is in the wrong room.
"""
