"""Measure the tokens of a step that gathers facts from many documents, with and without context editing.

task        the documents, and the facts to be found in them
gatherer    gives the answers by a rule, in place of a model
measure     runs the step on a real engine, and counts tokens
"""
