"""What would it cost? Memory, communication, roofline, serving: arithmetic, no verdicts."""
