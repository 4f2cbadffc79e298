"""What does a resource ask? The words of the wire end here: what is handed on is values that are
checked.

``subject`` is where to begin: a question with all names resolved.
"""
