"""The operator process: kopf watches, wiring, metrics, health and leadership, but no domain rules.

The *readers* of ``cluster`` keep caches warm, whoever leads. The *queue* holds the keys of models
for which something has changed; workers take the most urgent one, namespaces in turn. A *reconcile*
(``reconciler``) reads everything about one model, asks ``reconcile.next_step`` for the next step
until there is none, writes what it says in order and publishes the status.

Whatever a user's input can make expensive (resolving, planning, rendering) runs in a second process
that may be killed at any time (``planner_process``, ``planner_child``, ``ipc``). The Lease and the
probes have threads of their own and wait for nobody.

If a branch here depends on the nature of a group or a plan, it belongs in ``reconcile``.
"""
