"""Requests as people write them, with small files and checks by code: one chat, a direct answer and a plan compared."""
