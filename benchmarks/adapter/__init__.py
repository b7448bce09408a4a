"""An adapter (LoRA) that lets a small instruct model plan: data, training, export and evaluation.

None of this is in the wheel. `python -m benchmarks.adapter all` makes the adapter that ships from its seeds.
"""
