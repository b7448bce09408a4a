"""The web page of the daemon: its files, and how a browser logs in. `docs/adr/0045-the-web-page.md` says why so.

files      serves `static/`
bundle     puts modules of `static/` into one script
exported   writes a run as one file, by that
sessions   one-time links and sessions
login      endpoints for both
"""
