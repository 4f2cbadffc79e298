"""A plan as a page for a browser: one file that needs nothing else.

The only input is the document that ``explain -o json`` prints. So a page cannot show another number
than the document, and each number names its path in the document (``document``). The drawings
(``mesh``, ``charts``) are SVG made by templates; nothing is fetched, no script computes a
prediction.

Text of users is escaped as HTML here, and for a shell in ``rendering/``: two rooms, so that no
template of the one is ever loaded by the other.
"""
