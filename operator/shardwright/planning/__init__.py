"""What should run? Checks, selection, report; computes no cost."""
