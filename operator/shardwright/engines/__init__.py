"""How does an engine say it? Traits, guard rails and arguments; nothing is sized or decided here.

Planning asks an engine for values and never imports one: ``EngineTraits`` has its possible cuts and
the memory it keeps, each figure with its source. A plan is then put into the engine's words, and
users' options are checked: the tables in ``data`` list what the engine's own parser takes, and
``policy`` puts every option into one class (planned, free, counted, admitted, refused), with the
reason and the way out.

A deployable engine is one folder (``traits``, ``arguments``, ``environment``, ``policy``,
``releases`` and its tables in ``data``), named in ``registry``; its scripts are in ``rendering``. A
new engine version is a new table and the traits that differ.
"""
