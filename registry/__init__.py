"""Models, roles and personas: what this installation has, typed and checked when it is read.

This module imports nothing, so that an engine's process can import `registry.options` without the rest.
"""
