"""Measure what learned routing brings, what it costs, and what its parts are worth: `python -m benchmarks.routing`.

outcomes    a set of prompts with the outcomes of a weak and a strong model, embedded and compared
stream      passes the prompts of a set to a learner, one after the other, and scores its predictions and choices
learners    what is compared: the policy, its variants, and the simple methods it has to beat
grid        every action tried once at each task of the embedded models' families; `grid.csv` is the published one
rollouts    a router that learns on tasks of the grid, and is judged by held-out ones
families    the effect of learning: against routers that do not learn, without parts, after a shift, by threshold
modes       in which mode plans are run, with the staged reward and without
others      the other parts of the benchmark, each with its rows and goals
"""
