"""The programs that run in the pods, with the Python of the engine's image (3.10 or later) and its
standard library.

They are shipped as files: rendering reads their text and mounts it into the pod, nobody here
imports them. So they import nothing of this package, and read clocks and sockets as nothing else in
the pure core may.
"""
