"""What models, roles and personas may be called."""

from typing import Final

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
NAME_RULE: Final = "letters, digits, '_', '.' and '-', up to 64 characters"
