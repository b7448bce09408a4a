"""Measure the engine against its peers: the same models, prompts, tokens and threads, in turns on one machine."""
