"""The web page of the daemon: its files, and how a browser logs in. `docs/adr/0045-the-web-page.md` says why so.

files      serves `static/`
sessions   one-time links and sessions
login      endpoints for both
"""
