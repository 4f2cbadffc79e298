"""Say it to a person: text, tables, JSON; computes nothing, hides no number.

``explanation`` sorts a report into the questions that people ask, as values. ``text`` and the page
of ``pages/`` are forms of that one value, so they cannot disagree. Every figure is rounded to the
digits that it is worth and carries its band and its basis (``figures``).

``lines`` wraps words with roles to a width; colours belong to whoever prints.
"""
