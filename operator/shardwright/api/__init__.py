"""The wire contract: the ShardedModel resource, its schema, its conditions and its status.

The ``ShardedModel`` is written as pydantic models (``spec``, ``model``, ``engine``, ``pod``,
``workload``, ...). Everything else that describes it is made from them: the
CustomResourceDefinition (``schema``) and the messages of the parser (``violations``). A rule
between fields is written once, as CEL for the API server and as a predicate for the command line
and the operator (``rule``, ``rules``).

The output is here, too: the status (``published``), its conditions, and the plan of record that is
kept in a ConfigMap (``record``). A record of any released form can be read, so its versions only
grow.

No module asks a cluster or makes a decision. Above ``resolving/`` nothing reads these types.
"""
