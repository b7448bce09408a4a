"""How well a model plans natural requests and does real tasks.

structure  the structure of a plan, by which plans are compared; pure
requests   requests with the structures that are right: tuning.yaml, and unseen.yaml which nothing is ever tuned on
tasks      tasks with answers that can be checked: tasks.yaml
measure    asks a model for plans and answers, through the real frontdoor, engine and gates, and counts what is right
"""
