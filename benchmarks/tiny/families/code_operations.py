"""List what the functions of the family `code` may compute: an expression and the phrases that ask for it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """What a function computes: an `expression` over the parameters `{a}` and `{b}` and the constant `{n}`.

    The first of `phrases` is also used in the docstring of the function.
    """

    expression: str
    kinds: tuple[str, ...]
    returns: str
    phrases: tuple[str, ...]


INT, STR, LIST = "int", "str", "list[int]"

OPERATIONS = (
    Operation("{a} + {b}", (INT, INT), INT, ("the sum of {a} and {b}", "{a} plus {b}")),
    Operation("{a} - {b}", (INT, INT), INT, ("the difference of {a} and {b}", "{a} minus {b}")),
    Operation("{a} * {b}", (INT, INT), INT, ("the product of {a} and {b}", "{a} times {b}")),
    Operation("{a} // {b}", (INT, INT), INT, ("the whole quotient of {a} and {b}", "{a} divided by {b} without rest")),
    Operation("{a} % {b}", (INT, INT), INT, ("the remainder of {a} by {b}", "{a} modulo {b}")),
    Operation("max({a}, {b})", (INT, INT), INT, ("the larger of {a} and {b}", "the maximum of {a} and {b}")),
    Operation("min({a}, {b})", (INT, INT), INT, ("the smaller of {a} and {b}", "the minimum of {a} and {b}")),
    Operation("{a} ** 2", (INT,), INT, ("the square of {a}", "{a} squared")),
    Operation("{a} + {n}", (INT,), INT, ("{a} plus {n}", "{a} increased by {n}")),
    Operation("{a} - {n}", (INT,), INT, ("{a} minus {n}", "{a} decreased by {n}")),
    Operation("{a} * {n}", (INT,), INT, ("{a} times {n}", "{a} multiplied by {n}")),
    Operation("abs({a})", (INT,), INT, ("the absolute value of {a}", "{a} without its sign")),
    Operation("-{a}", (INT,), INT, ("the negative of {a}", "{a} with its sign changed")),
    Operation("{a} % 2 == 0", (INT,), "bool", ("whether {a} is even", "true if {a} is even")),
    Operation("{a} % 2 == 1", (INT,), "bool", ("whether {a} is odd", "true if {a} is odd")),
    Operation("{a} > {n}", (INT,), "bool", ("whether {a} is greater than {n}", "true if {a} is above {n}")),
    Operation("{a} < {n}", (INT,), "bool", ("whether {a} is less than {n}", "true if {a} is below {n}")),
    Operation("{a} == {b}", (INT, INT), "bool", ("whether {a} equals {b}", "true if {a} and {b} are equal")),
    Operation("str({a})", (INT,), STR, ("{a} as a string", "the number {a} as text")),
    Operation("len({a})", (STR,), INT, ("the length of the string {a}", "how many characters {a} has")),
    Operation("{a}.upper()", (STR,), STR, ("the string {a} in upper case", "{a} in capital letters")),
    Operation("{a}.lower()", (STR,), STR, ("the string {a} in lower case", "{a} in small letters")),
    Operation("{a}[::-1]", (STR,), STR, ("the string {a} reversed", "{a} read backwards")),
    Operation("{a}.strip()", (STR,), STR, ("the string {a} without outer spaces", "{a} stripped of outer spaces")),
    Operation("{a}.split()", (STR,), "list[str]", ("the words of {a}", "the list of words in {a}")),
    Operation("len({a}.split())", (STR,), INT, ("the number of words in {a}", "how many words {a} has")),
    Operation("{a}[:{n}]", (STR,), STR, ("the first {n} characters of {a}", "the leading {n} characters of {a}")),
    Operation("{a}[-{n}:]", (STR,), STR, ("the last {n} characters of {a}", "the final {n} characters of {a}")),
    Operation("{a}.count({b})", (STR, STR), INT, ("the count of {b} in {a}", "how often {b} occurs in {a}")),
    Operation("{a} + {b}", (STR, STR), STR, ("the string {a} followed by {b}", "the strings {a} and {b} joined")),
    Operation(
        "{a}.startswith({b})", (STR, STR), "bool", ("whether {a} starts with {b}", "true if {a} begins with {b}")
    ),
    Operation("{a}.endswith({b})", (STR, STR), "bool", ("whether {a} ends with {b}", "true if {a} ends in {b}")),
    Operation("len({a})", (LIST,), INT, ("the length of the list {a}", "how many items {a} has")),
    Operation("sum({a})", (LIST,), INT, ("the sum of the list {a}", "the total of the items in {a}")),
    Operation("max({a})", (LIST,), INT, ("the largest item of {a}", "the maximum of the list {a}")),
    Operation("min({a})", (LIST,), INT, ("the smallest item of {a}", "the minimum of the list {a}")),
    Operation("sorted({a})", (LIST,), LIST, ("the list {a} sorted", "the items of {a} in order")),
    Operation("{a}[::-1]", (LIST,), LIST, ("the list {a} reversed", "the items of {a} in reverse order")),
    Operation("{a}[0]", (LIST,), INT, ("the first item of {a}", "the item at the start of {a}")),
    Operation("{a}[-1]", (LIST,), INT, ("the last item of {a}", "the item at the end of {a}")),
    Operation("{a}[:{n}]", (LIST,), LIST, ("the first {n} items of {a}", "the leading {n} items of {a}")),
    Operation("{b} in {a}", (LIST, INT), "bool", ("whether {b} is in {a}", "true if {a} contains {b}")),
    Operation("sum({a}) / len({a})", (LIST,), "float", ("the mean of {a}", "the average of the items in {a}")),
    Operation("[x * {n} for x in {a}]", (LIST,), LIST, ("each item of {a} times {n}", "{a} with every item times {n}")),
    Operation("[x + {n} for x in {a}]", (LIST,), LIST, ("each item of {a} plus {n}", "{a} with every item plus {n}")),
    Operation("[x ** 2 for x in {a}]", (LIST,), LIST, ("the squares of {a}", "each item of {a} squared")),
    Operation(
        "[x for x in {a} if x > {n}]",
        (LIST,),
        LIST,
        ("the items of {a} greater than {n}", "the items of {a} above {n}"),
    ),
    Operation(
        "[x for x in {a} if x < {n}]", (LIST,), LIST, ("the items of {a} less than {n}", "the items of {a} below {n}")
    ),
    Operation(
        "[x for x in {a} if x % 2 == 0]", (LIST,), LIST, ("the even items of {a}", "the items of {a} that are even")
    ),
    Operation(
        "[x for x in {a} if x % 2 == 1]", (LIST,), LIST, ("the odd items of {a}", "the items of {a} that are odd")
    ),
)
