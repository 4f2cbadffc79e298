"""What do we have? Node objects to pools, domains and free GPUs; knows no model, schedules nothing.

Nodes and pods come as untrusted objects: every reader of ``untrusted`` takes any value and never
raises. ``facts`` keeps the parts of a Node that matter, ``identity`` finds its product,
``topology`` the links of its GPUs, ``suitability`` why it cannot be used. ``pools`` collapses
alike nodes into the ``Inventory`` that planning sees.

Figures of data sheets and instance types are tables with basis and source (``gpus``,
``topology``). A node that says too little is left out with its reason; nothing is guessed.
"""
