"""Measure what learned routing brings, what it costs, and what its parts are worth: `python -m benchmarks.routing`.

outcomes    a set of prompts with the outcomes of a weak and a strong model, embedded and compared
stream      passes the prompts of a set to a learner, one after the other, and scores its predictions and choices
learners    what is compared: the policy, its variants, and the simple methods it has to beat
parts       the parts of the benchmark, each with its rows and goals
"""
