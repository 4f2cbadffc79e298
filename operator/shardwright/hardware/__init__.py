"""What do we have? Node objects to pools, domains and free GPUs; knows no model, schedules nothing.

Nodes and pods come as untrusted objects (``untrusted``: every reader takes any value and never
raises). ``facts`` keeps the parts of a Node that matter, ``identity`` finds the product in its
labels, ``domains`` and ``networks`` the links of its GPUs to others, ``suitability`` why it cannot
be used. ``pools`` collapses alike nodes into pools with the GPUs that are free, which is the
``Inventory`` that planning sees.

The figures of data sheets and instance types stand in tables with basis and source (``gpus``,
``instances``, ``prices``). A node that says less than is needed is left out with its reason;
nothing is filled in by guessing.
"""
