"""What is this model? Facts from a ``config.json``, never guessed; knows no GPU and no engine.

``read`` turns the text of a ``config.json`` into a ``ModelSpec``, or into every problem found, each
with its path. ``parse`` bounds size and depth before anything is looked at, ``fields`` checks
presence, type and bounds, a module of ``families`` puts the layers together from the blocks of
``tensors``, and ``quantized`` says how each tensor is stored.

The layers are exact: bytes of weights and K/V equal those of vLLM's own classes, which
``tests/engine`` checks. A fact that a config leaves open is not guessed: the field is named in the
refusal.
"""
