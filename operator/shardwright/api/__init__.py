"""The wire contract: the ShardedModel resource, its schema, its conditions and its status.

The resource is written as pydantic models (``spec``, ``pod_spec``, ``weights_source``), from
which the CustomResourceDefinition (``schema``) and the parser's messages
(``violations``) are made. A rule between fields is written once, as CEL for the API server and as a
predicate for the command line and the operator (``rules``).

Output is here, too: the status (``published``), its conditions, and the plan of record in a
ConfigMap (``record``), of which any released form can be read.

No module asks a cluster or decides. Above ``resolving/`` nothing reads these types.
"""
