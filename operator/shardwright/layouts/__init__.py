"""How can it be cut? Degrees times domains to candidates; prices nothing, judges nothing.

A ``Layout`` is a set of degrees (tensor, pipeline, expert, data, context), a placement says on
which free GPUs its ranks sit, and both are a ``Candidate``. ``enumerate`` yields every candidate
worth pricing, lazily and always in the same order; ``stages`` deals the layers out, ``placing``
puts ranks that talk most into the same fast domain.

The cuts that an engine can make arrive as values (``layout``). No layout is preferred here.
"""
