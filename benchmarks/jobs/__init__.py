"""Measure whether the orchestrator answers requests better than one chat: jobs whose answers are checked by code.

job            a request, its files, and the check of its answer
checks         small checks that compose; part_checks: those of answers with several parts
hidden_tests   runs tests of model-written code in the sandbox
one_call, parts, code    the jobs by group; part_files: the files of `parts`
unseen_one_call, unseen_parts, unseen_code    those that are held out
simple_one_call, simple_parts, simple_code    held-out jobs that a small model can do
later_one_call, later_parts, later_code    held-out jobs of everyday kinds, written after the others
chat_files     what a chat is asked, and the files in its answer
arms           one chat, a direct answer, or a plan
measure        runs jobs in pairs, keeps answers, judges them, and counts
"""
