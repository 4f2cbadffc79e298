"""Rendered argument lists before the parsers, the configuration and the model classes of the real
engine.
"""
