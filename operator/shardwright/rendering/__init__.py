"""Which objects is that? A plan to a bundle of Kubernetes objects, with no cluster read.

``render`` turns a plan and a ``Deployment`` (the user's wishes for running it) into a ``Bundle``:
ConfigMap, Services, NetworkPolicy, disruption budget and one StatefulSet per group, whose pod
template is the same for every rank. The same input gives the same bytes, whatever the order of
keys: the hashes in ``bundle`` decide from them whether a group must restart.

Scripts are templates (``scripts``) around ordinary Python modules (``programs``), linted, typed and
tested. Whatever a user wrote is quoted for its place. A pod holds *restricted* Pod Security unless
the administrator has admitted more.
"""
