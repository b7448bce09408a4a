"""The form of a structured answer, for clients that take pydantic's models."""

from pydantic import BaseModel


class Person(BaseModel):
    """A person."""

    name: str
    age: int
