"""The only code that talks to Kubernetes; decides nothing."""
