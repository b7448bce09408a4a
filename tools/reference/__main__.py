"""Print a page of the documentation: `cli` is docs/cli.md, and `fields` is docs/reference.md."""

import argparse
from pkgutil import resolve_name
from typing import Final

# The module of a page is imported for it alone: the application of the API needs a second.
PAGES: Final = {"cli": "tools.reference.commands:page", "fields": "tools.reference.fields:page"}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.reference")
    parser.add_argument("page", choices=PAGES)
    print(resolve_name(PAGES[parser.parse_args().page])(), end="")
