"""A plan as a page for a browser: one file that needs nothing else.

The input is the document that ``explain -o json`` prints, and nothing else; so no number on a page
can be another one, and each can be found in the document by where it stands (``figures``). The
drawings (``mesh``, ``bars``, ``curve``) are SVG made by templates; nothing is fetched, no script
computes a prediction.

Text of users is escaped as HTML here, and for a shell in ``rendering/``: two rooms, so that no
template of the one is ever loaded by the other.
"""
