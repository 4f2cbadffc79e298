"""The commands ``shardwright`` and ``kubectl shardwright``; the same pipeline as the operator.

A command reads files or a cluster into the values that the operator plans with, calls the same
``pipeline``, and prints the answer. There is no planner of its own here, so a plan on a laptop is
the operator's plan.

Start-up time decides the shape: ``arguments`` and ``cluster_arguments`` know every option and
import nothing of the planner; each command's module is imported when it is called. Before that,
words that do not go together are refused (``combinations``), and a cluster that is asked has let us
in (``asked_cluster``).

Faults end in ``main`` alone, which turns them into exit codes (``exits``). All printing goes
through ``output`` and ``outputs``: text for people, documents for programs, and nothing of a
stranger's text reaches a terminal unescaped.
"""
