"""The commands ``shardwright`` and ``kubectl shardwright``; the same pipeline as the operator.

A command reads files or a cluster into the values that the operator plans with, calls the same
``pipeline``, and prints the answer. It has no planner of its own, so a plan on a laptop is the
operator's plan.

Start-up time decides the shape: ``commands`` and ``cluster_arguments`` know every option and
import no planner; each command's module is imported when it is called. Before that, words that do
not go together are refused (``typed``), and a cluster that is asked must let us in
(``asked_cluster``).

Only ``main`` turns faults into exit codes (``exits``). All printing goes through ``output``:
text for people, documents for programs; foreign text reaches a terminal only escaped.
"""
