"""Models, roles and personas of this installation, typed and checked when they are read.

This module imports nothing, so that an engine process can import `registry.options` without the rest.
"""
