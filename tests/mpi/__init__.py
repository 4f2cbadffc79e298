"""Groups of TensorRT-LLM with real ssh and real Open MPI: `make test-mpi`."""
