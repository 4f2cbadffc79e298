"""What is this model? Facts from a ``config.json``, never guessed; knows no GPU and no engine.

``read`` turns a ``config.json`` into a ``ModelSpec``, or into every problem found, each with its
path. ``config_json`` bounds size and depth first and checks presence, type and bounds, a module
of ``families`` builds the layers from the blocks of ``model_spec``, and ``quantized`` says how each
tensor is stored.

The layers are exact: bytes of weights and K/V equal those of vLLM's own classes (``tests/engine``).
What a config leaves open is not guessed: the refusal names the field.
"""
