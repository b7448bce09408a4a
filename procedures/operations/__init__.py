"""The operations that steps of procedures can call.

state      on models, gates, benchmarks, the state folder and the token
runs       carry out a run
memory     on personas, on the memory of learned routing, and on which router is followed
tuning     search the fastest settings of a model
frontdoor  train the model that plans requests
"""
