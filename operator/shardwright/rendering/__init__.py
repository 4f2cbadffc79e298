"""Which objects is that? A plan to a bundle of Kubernetes objects; sizes nothing, reads no cluster.

``render`` turns a plan and a ``Deployment`` (the user's wishes for running it) into a ``Bundle`` of
objects: ConfigMap, Services, NetworkPolicy, disruption budget and one StatefulSet per group, whose
pod template is the same for every rank. The same input gives the same bytes, whatever the order of
keys, because ``hashing`` decides from them whether a group must restart.

Scripts are templates (``scripts``) around programs that are ordinary Python modules (``programs``),
linted, typed and tested like all else. Everything that a user wrote is quoted for the place that it
stands in. A pod holds *restricted* Pod Security unless the administrator has admitted more.
"""
