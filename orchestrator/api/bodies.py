"""What all bodies of requests have in common."""

import json
from typing import Any

from pydantic import BaseModel, model_validator


class Body(BaseModel):
    """A whole body. Its text is Unicode: JSON can spell half a character, which nothing can be made of."""

    @model_validator(mode="before")
    @classmethod
    def _only_unicode(cls, given: Any) -> Any:
        try:
            json.dumps(given, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"holds text that is no Unicode: {error.reason}; accepted: whole characters") from error
        except RecursionError as error:
            raise ValueError("is nested too deep") from error
        return given
