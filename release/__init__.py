"""What a user installs, made from one version and proved by installing it: `python -m release`, or
`make release`.
"""
