"""How does an engine say it? Traits, guard rails and arguments; sizes nothing, decides nothing.

Planning asks an engine for values and never imports one: ``EngineTraits`` has the cuts that it
takes and the memory that it keeps, each figure with its source. Afterwards a plan is said in the
engine's words, and the options that a user adds are checked: ``option_tables`` are the engine's own
parser's lists, and ``policy`` puts every option into one class (planned, free, counted, admitted,
refused), with the reason and the way out.

An engine that is deployed is one folder (``traits``, ``arguments``, ``environment``, ``policy``,
``releases`` and its tables in ``data``), named in ``engine``; its scripts stand in ``rendering``. A
new version of an engine is a new table and the traits that differ.
"""
